"""Backward in several programs for its memory, as graphs on a GPU have it: all gradients are PyTorch's, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from bridge.programs import segments
from bridge.programs.memory import storage_of
from test_programs_parts import Images, UsedTwice, gradients, mlp, split_of

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]


@pytest.fixture
def in_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many programs as there can be, on every device."""
    monkeypatch.setattr(segments, "DEVICES", {"cpu", "cuda"})
    monkeypatch.setattr(segments, "SHORTEST", 2)
    monkeypatch.setattr(segments, "SMALLEST", 0)
    monkeypatch.setattr(segments, "ALLOWED", 0.0)


class _Scaled(torch.autograd.Function):
    """Its gradient writes to what it has made."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        found = torch.zeros_like(gradient)
        half = gradient.sin()
        found.add_(half.cos())
        found[1:].mul_(2)
        return found.add_(gradient)


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = mlp(), nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(_Scaled.apply(self.first(x)))


class Slices(nn.Module):
    """Views of a gradient, and sums of several, are used far from where they are made."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.last = nn.Linear(6, 24), nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b, c = self.all(x).chunk(3, -1)
        y = torch.softmax(a @ b.transpose(-2, -1), -1) @ c
        return self.last(torch.cat([y, a, b.t().t()], -1)[:, 4:12]) + self.last.weight.sum(-1)


@pytest.mark.parametrize("by_argument", [False, True], ids=["weights", "all"])
@pytest.mark.parametrize("make", [mlp, Images, UsedTwice, Writes, Slices])
def test_gradients_are_pytorchs(
    make: Callable[[], nn.Module], by_argument: bool, in_many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    module = make()
    [pair] = split_of(module, monkeypatch)
    assert len(pair.backward) > 2
    expected, found = gradients(module, by_argument)
    assert len(expected) == len(found)
    for wanted, got in zip(expected, found, strict=True):
        assert got.asnumpy().tobytes() == wanted.cpu().numpy().tobytes()


@pytest.mark.parametrize("make", [Images, Writes, Slices])
def test_a_program_writes_to_what_it_has_made(
    make: Callable[[], nn.Module], in_many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    [pair] = split_of(make(), monkeypatch)
    for program in pair.backward:
        tensors = program.tape.tensors
        taken = {storage_of(tensors[number]) for number in program.inputs}
        assert taken.isdisjoint(storage_of(tensors[number]) for call in program.calls for number in call.written)
        assert program.outputs


def test_backward_is_one_program_where_the_kernel_frees_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, and where little memory is needed. The argument's gradient is apart."""
    [pair] = split_of(mlp(), monkeypatch)
    assert len(pair.backward) == 2


def test_a_program_ends_where_it_would_need_more_memory_than_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten pairs of calls: each makes a gradient of 40 bytes, and is the last to use 100 bytes that forward saved."""
    saved = [segments._Memory(100, -1, 2 * i + 1) for i in range(10)]
    gradients = [segments._Memory(40, 2 * i, 20) for i in range(10)]
    temporary = [segments._Memory(8, 2 * i, 2 * i + 1) for i in range(10)]
    costs = segments._Costs([*saved, *gradients, *temporary], 20)
    assert costs.pytorchs == 1000 + 40 + 8
    assert costs.of(0, 20) == 1000 + 400 + 8
    assert costs.of(4, 8) == 800 + 80 + 80 + 8
    assert costs.of(1, 3) == 1000 + 40 + 8 + 40 + 8  # it takes the first temporary, and gives the second
    monkeypatch.setattr(segments, "ALLOWED", 1.1)
    monkeypatch.setattr(segments, "SHORTEST", 2)
    cuts = [*range(2, 19), 20]
    assert segments._end(costs, 0, cuts) == 6  # three gradients
    assert segments._end(costs, 6, [cut for cut in cuts if cut > 6]) == 20
