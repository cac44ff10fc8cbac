"""scripts/check_docs.py finds the commands of README and docs; CI runs them."""

from __future__ import annotations

import pathlib

import check_docs

DOCUMENT = """
Run `python -m bridge coverage` and `pytest tests`; `python` and `x = 1` are no commands.

```bash
source env.sh             # once
pip install 'a>=7' b

```

```python
x = 1
print(x)  # `python no.py`
```

```
python no.py
```
Again `pytest tests`.
"""


def test_commands_and_programs_are_found_in_their_order() -> None:
    found = check_docs.steps("a.md", DOCUMENT)
    assert [(step.name, step.place) for step in found] == [
        ("python -m bridge coverage", "a.md:2"),
        ("pytest tests", "a.md:2"),
        ("source env.sh", "a.md:5"),
        ("pip install 'a>=7' b", "a.md:6"),
        ("a.md: x = 1", "a.md:11"),
        ("pytest tests", "a.md:18"),
    ]
    assert [step.text for step in found if step.is_program] == ["x = 1\nprint(x)  # `python no.py`\n"]


def test_what_is_left_out_is_in_the_documents() -> None:
    found = check_docs.all_steps(check_docs.ROOT)
    assert check_docs.stale(found) == []
    assert {"bash scripts/run_cpu.sh", "source env.sh", "python -m bridge coverage"} <= {step.name for step in found}


def test_what_a_command_sets_lasts(tmp_path: pathlib.Path) -> None:
    document = "```bash\nexport A=1\ntest $A = 1\nfalse\n```\n"
    found = check_docs.steps("a.md", document)
    assert [step.name for step in check_docs.run(found, "", tmp_path)] == ["false"]
    assert check_docs.run(found, "test", tmp_path) == []
