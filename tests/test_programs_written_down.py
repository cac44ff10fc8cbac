"""What a kept program follows from: it is captured anew when a value that its code finds somewhere is another one."""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge.programs.written_down import write_down
from of_users import networks, settings

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]
ENVIRONMENT = "SCALE_OF_THIS_TEST"


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Puts back what a test changes."""
    monkeypatch.setenv(ENVIRONMENT, "2")
    networks.cached.cache_clear()
    return monkeypatch


def change(patch: pytest.MonkeyPatch) -> None:
    """Change all values."""
    patch.setattr(settings, "K", 3.0)
    patch.setitem(settings.D, "k", 3.0)
    patch.setattr(settings, "S", settings.S | {"c"})
    for holder in (settings.namespace, settings.Options, networks.counted, networks.Base):
        patch.setattr(holder, "k", 3.0)
    patch.setattr(settings.setting, "v", 3.0)
    patch.setattr(networks, "ARRAY", np.array([3.0], np.float32))
    patch.setenv(ENVIRONMENT, "3")
    networks.cached.cache_clear()


def digest(function: Any) -> bytes:
    written = write_down(function, [])
    assert written is not None
    return written.digest


@pytest.mark.parametrize("forward", networks.FORWARDS.values(), ids=networks.FORWARDS)
def test_what_code_finds_is_written_down(patch: pytest.MonkeyPatch, forward: Any) -> None:
    network, x = networks.Network(forward), torch.ones(1)
    first, result = digest(network), network(x)
    assert digest(networks.Network(forward)) == first
    change(patch)
    assert network(x) != result
    assert digest(networks.Network(forward)) != first


def test_what_is_read_from_files_is_not() -> None:
    assert write_down(networks.Network(networks.of_a_file), []) is None


def in_graph(function: Any) -> float:
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return function(x)

    return float(ms.jit(call)(ms.Tensor([1.0], ms.float32)))


def test_programs_are_captured_anew(patch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    patch.setattr(networks, "FILE", str(tmp_path / "scale.txt"))
    forwards = [networks.FORWARDS["a module"], networks.FORWARDS["its class"], networks.of_a_file]

    def results() -> list[float]:
        found = [in_graph(bridge.cell(networks.Network(forward))) for forward in forwards]
        return [*found, in_graph(bridge.fuse(networks.of_operators))]

    pathlib.Path(networks.FILE).write_text("2")
    assert results() == [2, 2, 2, 8]
    change(patch)
    pathlib.Path(networks.FILE).write_text("3")
    assert results() == [3, 3, 3, 18]


class Keeps(torch.nn.Module):
    """What has another order or hash in each process."""

    names = frozenset({"some", "names", "of", "parts"})

    def __init__(self) -> None:
        super().__init__()
        self.part = SimpleNamespace(names=set(self.names), _original_object_hash=hash("a text"))

    @functools.cached_property
    def count(self) -> int:
        return len(self.names)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.count


def test_processes_agree() -> None:
    command = "import test_programs_written_down as own; print(own.digest(own.Keeps()).hex())"
    found = {
        subprocess.run(
            [sys.executable, "-c", command],
            capture_output=True,
            text=True,
            check=True,
            cwd=pathlib.Path(__file__).parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.splitlines()[-1]
        for seed in ("1", "2")
    }
    assert len(found) == 1
