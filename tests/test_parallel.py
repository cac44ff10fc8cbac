"""Data-parallel training under msrun: two processes on the CPU."""

from __future__ import annotations

import pathlib
import subprocess
import sys


def test_two_workers_train_alike() -> None:
    root = pathlib.Path(__file__).parent.parent
    command = [sys.executable, "-m", "scripts.parallel", "--workers", "2", "--steps", "6"]
    done = subprocess.run(command, cwd=root, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ways = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in ways] == ["by-hand", "Model.train", "Model.train-graph"], done.stdout
    assert all("ranks equal" in line for line in ways), done.stdout
