"""Runs every command and program of README.md and docs/*.md, in their order, in a fresh clone of what is committed.

    python3 scripts/check_docs.py                # all; this is what CI runs
    python3 scripts/check_docs.py --list         # what is run, and what is not and why
    python3 scripts/check_docs.py --folder F     # in the folder F, which stays: the next time takes less
    python3 scripts/check_docs.py --only topk    # the commands with this in them, after `source` and the like

A command is a line of a ```bash block, or `code` that begins with the name of a program in COMMANDS; it runs in the
clone's root. What `source`, `cd` and `export` do lasts. A ```python block is a program. One that is written down twice
runs once.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMANDS = ("bash", "python", "python3", "pytest", "pip", "source")
STATE = ("source ", "cd ", "export ")

# What is not run, and why. A program is known by its document and its first line.
EXCLUDED = {
    "bash scripts/run_gpu.sh": "it needs a GPU",
    "bash scripts/sanitize_gpu.sh": "it needs a GPU",
    "pytest tests --device GPU": "it needs a GPU",
    "python scripts/trace_gpu.py": "it needs a GPU",
    "python scripts/trace_gpu.py --networks": "it needs a GPU",
    "python scripts/networks.py --device GPU": "it needs a GPU",
    "python scripts/bench_programs.py --device GPU": "it needs a GPU",
    "python -m scripts.conformance --device GPU --max-samples 3": "it needs a GPU",
    "python scripts/bench_calls.py --device GPU --quick": "it needs a GPU",
    "python scripts/train_demo.py --device GPU": "it needs a GPU",
    "python scripts/examples/NAME/run.py --device GPU": "it needs a GPU",
    "python scripts/bench_calls.py": "it takes half an hour, and measures what other work on the machine would spoil",
    "python scripts/bench_calls.py --backward": "as above",
    "python scripts/bench_graph.py": "it takes minutes, and measures what other work on the machine would spoil",
    "python scripts/bench_many_networks.py transformers geometric": "it takes minutes, and others' packages",
    "python scripts/bench_programs.py": "it takes minutes, and measures what other work on the machine would spoil",
    "python scripts/bench_first_call.py": "it measures what other work on the machine would spoil",
    "python scripts/bench_functions.py": "it measures what other work on the machine would spoil",
    "python -m scripts.conformance.methods": "it takes minutes",
    "bash scripts/versions.sh 2.10.0 2.15.0": "it makes an environment of several GB for each pair",
    "bash scripts/versions.sh 2.9.0 2.14.1 python3.10": "as above",
    "bash scripts/versions.sh MINDSPORE TORCH": "it makes an environment of several GB for each pair",
    "bash scripts/train_parallel.sh --device GPU --workers 1 2 4": "it needs GPUs",
    "python scripts/foreign_packages.py": "it fetches and compiles packages of others, which takes many minutes",
    "python -m scripts.ported": "it needs packages of others, and takes minutes",
    "python scripts/families.py timm": "as above",
    "python -m scripts.optimizers --time": "it measures what other work on the machine would spoil",
    "docs/gpu.md: import mindspore as ms": "it needs a GPU",
    'docs/gpu.md: ms.runtime.set_memory(max_size="60GB")  # MindSpore\'s share': "it needs a GPU",
    "docs/kernels.md: results=lambda x, y: x.new_empty(x.shape[0], x.shape[1], y.shape[1])": "it is one argument",
}
# What runs otherwise than it is written: the command, and why.
INSTEAD = {
    "python -m scripts.conformance": (
        "python -m scripts.conformance --limit 20 --no-own-samples", "all of it takes many minutes"),
    "python -m scripts.conformance.functions": (
        "python -m scripts.conformance.functions --names 'nn.functional.*norm'", "all of it takes minutes"),
    "python scripts/refusals.py --changes --ops NAME": (
        "python scripts/refusals.py --changes --ops cumsum", "NAME stands for an operator"),
    "python -m scripts.layers": ("python -m scripts.layers Linear --first 2", "all of it takes many minutes"),
    "python -m scripts.optimizers": ("python -m scripts.optimizers AdamW", "all of it takes minutes"),
    "python scripts/networks.py": (
        "python scripts/networks.py torch", "the other networks come from packages that the bridge does not need"),
    "bash scripts/train_parallel.sh": ("bash scripts/train_parallel.sh --steps 6", "a few steps show that it works"),
    "python tests/test_cpu_op.py NAME": ("python tests/test_cpu_op.py cumsum", "NAME stands for an operator"),
    "python scripts/examples/NAME/run.py [--device GPU]": (
        "python scripts/examples/sigmoid/run.py", "NAME stands for an example, and there may be no GPU"),
    "pip install 'setuptools>=70' wheel ninja pyyaml": (
        "python3 -m venv build/own && echo $PWD/.venv/lib/python3.*/site-packages >$(echo "
        "build/own/lib/python3.*/site-packages)/frameworks.pth && "
        "build/own/bin/pip install --quiet --ignore-installed 'setuptools>=70' wheel ninja pyyaml",
        "the environment of your own takes MindSpore and PyTorch from .venv"),
    "pip install -v --no-build-isolation .": (
        "build/own/bin/pip install --quiet --no-build-isolation . && cd / && "
        "$OLDPWD/build/own/bin/python -c 'from bridge import aten; print(aten.add)'", "as above"),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Step:
    """A command or a program of a document.

    Attributes:
        name: the command; of a program its document and its first line.
        text: the command, or the program.
        is_program: whether it is Python.
        place: the document and the line.
    """

    name: str
    text: str
    is_program: bool
    place: str


def steps(document: str, text: str) -> list[Step]:
    """The commands and programs of a document, in its order."""
    found: list[Step] = []
    language, block, begin = "", [""], 0
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{document}:{number}"
        if line.startswith("```"):
            if language == "python":
                first = next(row for row in block if row.strip())
                found.append(Step(f"{document}: {first}", "\n".join(block) + "\n", True, f"{document}:{begin}"))
            language, block, begin = ("" if language else line[3:].strip() or "text"), [], number + 1
        elif language == "bash":
            command = re.sub(r"(^|\s+)#.*", "", line).strip()
            if command:
                found.append(Step(command, command, False, place))
        elif language:
            block.append(line)
        else:
            for code in re.findall(r"`([^`]+)`", line):
                if code.partition(" ")[0] in COMMANDS and " " in code:
                    found.append(Step(code, code, False, place))
    return found


def documents(root: pathlib.Path) -> list[pathlib.Path]:
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def all_steps(root: pathlib.Path) -> list[Step]:
    """Those of README.md and of docs/, each once."""
    found: dict[str, Step] = {}
    for path in documents(root):
        document = str(path.relative_to(root))
        for step in steps(document, path.read_text()):
            found.setdefault(step.text, step)
    return list(found.values())


def stale(found: list[Step]) -> list[str]:
    """Entries of the tables above that no document has."""
    names = {step.name for step in found}
    return [name for table in (EXCLUDED, INSTEAD) for name in table if name not in names]


def script(step: Step, state: list[str], number: int, clone: pathlib.Path) -> str:
    """What bash runs in the clone's root."""
    if not step.is_program:
        return "\n".join([*state, INSTEAD.get(step.name, (step.text,))[0]])
    program = clone / "build" / f"program_{number}.py"
    program.parent.mkdir(exist_ok=True)
    program.write_text(step.text)  # in a file: MindSpore compiles from sources
    return "\n".join([*state, f"python '{program}'"])


def run(found: list[Step], only: str, clone: pathlib.Path) -> list[Step]:
    """Run the steps in the clone; returns those that failed."""
    state: list[str] = ["set -e"]
    failed = []
    for number, step in enumerate(found, 1):
        lasts = not step.is_program and step.text.startswith(STATE)
        if step.name in EXCLUDED or (only not in step.name and not lasts):
            continue
        command = INSTEAD.get(step.name, (step.name,))[0]
        print(f"\n[{number}/{len(found)}] {step.place}: {command}", flush=True)
        begin = time.monotonic()
        line = script(step, state, number, clone)
        done = subprocess.run(["bash", "-c", line], cwd=clone, stdin=subprocess.DEVNULL, check=False)
        print(f"    {'FAILED' if done.returncode else 'done'} after {time.monotonic() - begin:.0f} s", flush=True)
        if done.returncode:
            failed.append(step)
        elif lasts:
            state.append(step.text)
    return failed


def print_list(found: list[Step]) -> None:
    for step in found:
        if step.name in EXCLUDED:
            print(f"{step.place}: {step.name}\n    is not run: {EXCLUDED[step.name]}")
        elif step.name in INSTEAD:
            command, reason = INSTEAD[step.name]
            print(f"{step.place}: {step.name}\n    runs as {command}\n    because {reason}")
        else:
            print(f"{step.place}: {step.name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    found = all_steps(ROOT)
    print_list(found)
    for name in stale(found):
        print(f"scripts/check_docs.py has an entry that no document has: {name}")
    if args.list or stale(found):
        return 1 if stale(found) else 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        clone = (args.folder or pathlib.Path(temporary) / "clone").resolve()
        if clone.exists():
            subprocess.run(["git", "-C", clone, "pull", "--quiet", "--ff-only"], check=True)
        else:
            subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        failed = run(found, args.only, clone)
    for step in failed:
        print(f"FAILED {step.place}: {step.name}")
    ran = [step for step in found if step.name not in EXCLUDED and args.only in step.name]
    print(f"{len(ran) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
