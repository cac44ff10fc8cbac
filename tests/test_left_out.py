"""Parameters that a loss does not depend on: PyTorch's optimizers leave them as they are, and so do the bridge's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge import aten, optim
from bridge.op import devices
from shared import data, modes, on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs")]

differentiates = pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad], ids=["ms", "one"])


class WithUnused(torch.nn.Module):
    """What is left out: a parameter that nothing asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.unused = torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).square().mean()


class TwoHeads(WithUnused):
    """A result that the loss does not use."""

    def forward(self, x: torch.Tensor) -> Any:
        found = self.layer(x)
        return found.square().mean(), self.unused(found)


class InTurns(torch.nn.Module):
    """Another layer in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        position = int(x.abs().sum() * 10) % 3
        return (x + self.layers[position](x)).square().mean()


class Dead(torch.nn.Module):
    """A gradient that is zero, and there."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.gate = torch.nn.Linear(4, 3), torch.nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layer(x) * self.gate).sum()


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("AdamW", {"weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
]


def batches(count: int = 6) -> Iterator[np.ndarray]:
    return (data(5, 4, seed=i) for i in range(count))


def of_torch(module: torch.nn.Module, name: str, options: dict[str, Any], of: Callable[..., Any]) -> Any:
    module = copy.deepcopy(module)
    optimizer = getattr(torch.optim, name)(module.parameters(), **options)
    for x in batches():
        optimizer.zero_grad()
        of(module(on_device(x))).backward()
        optimizer.step()
    return module, optimizer


def training_step(function: Any, optimizer: Any, wrap: Any) -> Any:
    """A step with the loss and the gradients that the function gives."""

    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        loss, gradients = function(x)
        optimizer(gradients)
        return loss

    return wrap(step)


def check(module: torch.nn.Module, optimizer: Any, expected: Any, is_followed: bool = True) -> None:
    """Compare weights and states; where zeros stay zeros, all weights but the unused ones."""
    theirs, their_optimizer = expected
    ms.runtime.synchronize()
    for (name, own), tensor in zip(module.state_dict().items(), theirs.state_dict().values(), strict=True):
        assert torch.equal(own, tensor) == (is_followed or not name.startswith("unused")), name
    states, their_states = optimizer.state_dict()["state"].keys(), their_optimizer.state_dict()["state"].keys()
    assert states == (their_states if is_followed else {*range(len(optimizer.parameters))})


def is_followed(differentiate: Any, wrap: Any) -> bool:
    """Whether zeros of unused parameters are told from others (docs/modules.md)."""
    return wrap is not ms.jit or (differentiate is bridge.value_and_grad and devices.target() == "CPU")


@modes
@differentiates
@pytest.mark.parametrize("name, options", OPTIMIZERS)
@pytest.mark.parametrize("kind", [WithUnused, Dead])
def test_what_the_module_does_not_use(kind: Any, name: str, options: Any, differentiate: Any, wrap: Any) -> None:
    torch.manual_seed(0)
    module = kind().to(torch_device())
    expected = of_torch(module, name, options, lambda loss: loss)
    net = bridge.cell(module)
    optimizer = getattr(optim, name)(net.trainable_params(), **options)
    function = differentiate(net, None, optimizer.parameters)

    step = training_step(function, optimizer, wrap)
    for x in batches():
        step(ms.Tensor(x))
    check(module, optimizer, expected, kind is Dead or is_followed(differentiate, wrap))


@modes
@differentiates
def test_a_result_that_the_loss_does_not_use(differentiate: Any, wrap: Any) -> None:
    torch.manual_seed(0)
    module = TwoHeads().to(torch_device())
    expected = of_torch(module, "AdamW", {}, lambda results: results[0])
    net = bridge.cell(module)
    optimizer = optim.AdamW(net.trainable_params())

    def loss_of(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)[0]

    function = differentiate(loss_of, None, optimizer.parameters)

    step = training_step(function, optimizer, wrap)
    for x in batches():
        step(ms.Tensor(x))
    check(module, optimizer, expected, is_followed(differentiate, wrap))


@differentiates
def test_layers_that_steps_leave_out(differentiate: Any) -> None:
    torch.manual_seed(0)
    module = InTurns().to(torch_device())
    expected = of_torch(module, "AdamW", {}, lambda loss: loss)
    net = bridge.cell(module)
    optimizer = optim.AdamW(net.trainable_params())
    function = differentiate(net, None, optimizer.parameters)
    for x in batches():
        optimizer(function(ms.Tensor(x))[1])
    check(module, optimizer, expected)


@differentiates
def test_gradients_that_are_added(differentiate: Any) -> None:
    torch.manual_seed(0)
    module = InTurns().to(torch_device())
    theirs = copy.deepcopy(module)
    expected = torch.optim.AdamW(theirs.parameters())
    net = bridge.cell(module)
    optimizer = optim.AdamW(net.trainable_params())
    function = differentiate(net, None, optimizer.parameters)
    for first, second in zip(batches(6), reversed([*batches(6)]), strict=True):
        expected.zero_grad()
        for x in (first, second):
            theirs(on_device(x)).backward()
        expected.step()
        gradients = [function(ms.Tensor(x))[1] for x in (first, second)]
        optimizer(tuple(one + other for one, other in zip(*gradients, strict=True)))
    check(module, optimizer, (theirs, expected))


class Adapted(WithUnused):
    """Parameters that the caller applies. The first gradient of one of them is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = torch.nn.Parameter(torch.randn(4, 2)), torch.nn.Parameter(torch.zeros(2, 4))


@modes
def test_parameters_that_the_caller_applies(wrap: Any) -> None:
    torch.manual_seed(0)
    module = Adapted().to(torch_device())
    del module.unused
    theirs = copy.deepcopy(module)
    expected = torch.optim.AdamW(theirs.parameters(), 0.1)
    net = bridge.cell(module)
    optimizer = optim.AdamW(net.trainable_params(), 0.1)
    down, up = (next(p for p in optimizer.parameters if p.name == name) for name in ("down", "up"))

    def loss_of(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.add(net(x), aten.mean(aten.exp(aten.mm(aten.mm(x, down), up))))

    function = ms.value_and_grad(loss_of, None, optimizer.parameters)

    step = training_step(function, optimizer, wrap)
    for x in batches():
        expected.zero_grad()
        given = on_device(x)
        (theirs(given) + torch.mean(torch.exp(given @ theirs.down @ theirs.up))).backward()
        expected.step()
        step(ms.Tensor(x))
    check(module, optimizer, (theirs, expected))


def test_another_loss_of_mindspores() -> None:
    torch.manual_seed(0)
    module = WithUnused().to(torch_device())
    theirs = copy.deepcopy(module)
    expected = torch.optim.AdamW(theirs.parameters())
    net = bridge.cell(module)
    optimizer = optim.AdamW(net.trainable_params())
    weight = next(p for p in optimizer.parameters if p.name == "unused.weight")
    function = ms.value_and_grad(lambda x: net(x) + (weight * 0.5).sum(), None, optimizer.parameters)
    for x in batches():
        expected.zero_grad()
        (theirs(on_device(x)) + (theirs.unused.weight * 0.5).sum()).backward()
        expected.step()
        optimizer(function(ms.Tensor(x))[1])
    check(module, optimizer, (theirs, expected))


def test_what_is_added_to_zeros_in_a_graph() -> None:
    """After steps that C++ has repeated without Python."""
    torch.manual_seed(0)
    module = WithUnused().to(torch_device())
    theirs = copy.deepcopy(module)
    expected = torch.optim.AdamW(theirs.parameters())
    net = bridge.cell(module)
    optimizer = optim.AdamW(net.trainable_params())
    function = bridge.value_and_grad(net, None, optimizer.parameters)

    @ms.jit
    def step(x, added):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        _, (first, second, third, fourth) = function(x)
        return optimizer((first, second, third + added, fourth))

    for i, x in enumerate(batches(12)):
        added = np.full((2, 3), 0.0 if i < 8 else 0.5, np.float32)
        expected.zero_grad()
        theirs(on_device(x)).backward()
        theirs.unused.weight.grad = on_device(added) if i >= 8 else None
        expected.step()
        step(ms.Tensor(x), ms.Tensor(added))
    if is_followed(bridge.value_and_grad, ms.jit):
        check(module, optimizer, (theirs, expected))
