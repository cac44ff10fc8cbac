"""Data-parallel training under msrun: two processes on the CPU."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Iterator

import mindspore as ms
import pytest
import torch

from bridge.programs.calls import Refusal
from bridge.programs.refusals import refuse_racing_gradients


def test_two_workers_train_alike() -> None:
    root = pathlib.Path(__file__).parent.parent
    command = [sys.executable, "-m", "scripts.parallel", "--workers", "2", "--steps", "6"]
    done = subprocess.run(command, cwd=root, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ways = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in ways] == ["by-hand", "Model.train", "Model.train-graph"], done.stdout
    assert all("ranks equal" in line for line in ways), done.stdout


@pytest.fixture
def data_parallel() -> Iterator[None]:
    ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL)
    yield
    ms.reset_auto_parallel_context()


@pytest.mark.usefixtures("data_parallel")
def test_gradients_of_gpus_are_reduced_by_one_all_reduce() -> None:
    """MindSpore does not wait for several; see docs/parallel.md."""
    weights = [torch.zeros(2**19), torch.zeros(2**19)]
    with pytest.raises(Refusal, match="comm_fusion"):
        refuse_racing_gradients(weights)
    ms.set_auto_parallel_context(comm_fusion={"allreduce": {"mode": "size", "config": 3}})
    with pytest.raises(Refusal, match="comm_fusion"):
        refuse_racing_gradients(weights)
    ms.set_auto_parallel_context(comm_fusion={"allreduce": {"mode": "size", "config": 4}})
    refuse_racing_gradients(weights)


def test_one_device_may_reduce_as_it_likes() -> None:
    refuse_racing_gradients([torch.zeros(2**19)])
