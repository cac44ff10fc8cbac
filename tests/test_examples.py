"""The examples of scripts/examples, which check their results and gradients themselves."""

from __future__ import annotations

import importlib
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
EXAMPLES = sorted(path.parent.name for path in (ROOT / "scripts" / "examples").glob("*/run.py"))


def test_all_examples_are_here() -> None:
    assert EXAMPLES == ["custom_add", "gdh", "nms", "outer", "pointnet2", "sigmoid", "sparse_conv"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # an example puts its folder there
    importlib.import_module(f"examples.{name}.run").main()
    assert "largest relative difference" in capsys.readouterr().out


def test_an_example_by_its_command() -> None:
    path = ROOT / "scripts" / "examples" / "custom_add" / "run.py"
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "graph: gradient of b: largest relative difference 0.0e+00" in done.stdout
