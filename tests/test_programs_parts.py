"""Backward in a graph in two parts: gradients of arguments that nobody asks for are not computed, and all gradients
are PyTorch's, bit for bit, whichever are asked for."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import mindspore as ms
import pytest
import torch
from torch import nn

import bridge
from bridge.op import devices
from bridge.programs import plan
from shared import data

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]

_numbers = itertools.count()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.Tanh())


class Images(nn.Module):
    """Its first layer is a convolution, of an argument that it has changed the shape of."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.last = nn.Conv2d(4, 4, 3, groups=2), nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu_(self.norm(self.first(x.reshape(5, 2, 3, 1).expand(5, 2, 3, 4))))
        return self.last(self.second(y).mean((2, 3)))


class UsedTwice(nn.Module):
    """The argument's gradient is a sum, of which a part is made on the way to the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.norm = mlp(), nn.LayerNorm(6)
        self.last = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) + self.last(self.layers(self.norm(x))) * x + x


class Drops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.layers = nn.Dropout(0.4), mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(self.drop(x.t()).t())


def random(*shape: int) -> torch.Tensor:
    return torch.from_numpy(data(*shape))


Gradients = tuple[list[torch.Tensor], list[Any]]


def gradients(module: nn.Module, by_argument: bool) -> Gradients:
    """PyTorch's gradients and the bridge's."""
    device = devices.torch_name(devices.target())
    reference = copy.deepcopy(module).to(device)
    x = random(5, 6).to(device).requires_grad_(by_argument)
    torch.manual_seed(3)
    value = reference(x)
    asked = [*([x] if by_argument else []), *reference.parameters()]
    expected = torch.autograd.grad(value, asked, torch.ones_like(value))
    net = bridge.cell(module)
    differentiate = ms.grad(net, 0 if by_argument else None, net.trainable_params())

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    torch.manual_seed(3)
    found = ms.jit(call)(ms.Tensor(data(5, 6)))
    return list(expected), [found[0], *found[1]] if by_argument else list(found)


@pytest.mark.parametrize("by_argument", [False, True], ids=["weights", "all"])
@pytest.mark.parametrize("make", [mlp, Images, UsedTwice, Drops])
def test_gradients_are_pytorchs(make: Callable[[], nn.Module], by_argument: bool) -> None:
    torch.manual_seed(0)
    expected, found = gradients(make(), by_argument)
    assert len(expected) == len(found)
    for wanted, got in zip(expected, found, strict=True):
        assert got.asnumpy().tobytes() == wanted.cpu().numpy().tobytes()


@pytest.mark.parametrize("by_argument", [False, True], ids=["weights", "all"])
def test_what_only_the_arguments_gradient_needs_runs_where_it_is_asked_for(by_argument: bool) -> None:
    launches = []
    name = f"in_parts::scaled{next(_numbers)}"

    @torch.library.custom_op(name, mutates_args=())
    def scaled(x: torch.Tensor, in_backward: bool) -> torch.Tensor:
        launches.append(in_backward)
        return x * 3

    scaled.register_fake(lambda x, in_backward: torch.empty_like(x))
    scaled.register_autograd(lambda context, gradient: (scaled(gradient, True), None))

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(scaled(x, False))

    module = Scaled()
    expected, found = gradients(module, by_argument)
    for wanted, got in zip(expected, found, strict=True):
        assert got.asnumpy().tobytes() == wanted.cpu().numpy().tobytes()
    in_pytorch = [False, True] if by_argument else [False]
    assert launches == in_pytorch * 2


def splits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is split from now on, while it is."""
    pairs = []
    split = plan.split

    def kept(*args: Any) -> Any:
        pairs.append(split(*args))
        return pairs[-1]

    monkeypatch.setattr(plan, "split", kept)
    return pairs


def split_of(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that a module's gradients take."""
    pairs = splits(monkeypatch)
    gradients(module, by_argument=False)
    return pairs


def test_a_first_convolution_computes_its_weights_gradient_only(monkeypatch: pytest.MonkeyPatch) -> None:
    [pair] = split_of(Images(), monkeypatch)
    masks = [
        [call.arguments[-1] for call in program.calls if call.op is torch.ops.aten.convolution_backward.default]
        for program in pair.backward
    ]
    assert masks == [[[True, True, True], [False, True, True]], [[True, False, False]]]


def test_a_layers_backward_is_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    [pair] = split_of(nn.Linear(6, 8), monkeypatch)
    assert len(pair.backward) == 1
