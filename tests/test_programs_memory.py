"""The memory of programs in a graph on the CPU: no more than PyTorch needs, and what is still needed stays."""

from __future__ import annotations

import functools
import pathlib
import re
import subprocess
import sys
from typing import Any

import mindspore as ms
import pytest
import torch
from torch import nn

import bridge
from shared import data

# Resident memory holds what neither has asked for too, and both frameworks' own, and PyTorch's varies by a quarter; a
# graph that keeps what backward has used, or has memory for all gradients from its beginning, needs half as much again.
_LEEWAY = 1.25


def layers(width: int = 1024, count: int = 12) -> nn.Module:
    """Whose weights need as much memory as what a batch of half their width saves."""
    return nn.Sequential(*(layer for _ in range(count) for layer in (nn.Linear(width, width), nn.GELU())))


def in_torch(module: nn.Module, x: torch.Tensor) -> Any:
    def step() -> Any:
        return torch.autograd.grad(module(x).sum(), list(module.parameters()))

    return step


def in_graph(module: nn.Module, x: torch.Tensor, value_and_grad: Any = ms.value_and_grad) -> Any:
    net, given = bridge.cell(module), ms.Tensor(x.numpy())
    differentiate = value_and_grad(net, None, net.trainable_params())

    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    return functools.partial(ms.jit(step), given)


def in_one_graph(module: nn.Module, x: torch.Tensor) -> Any:
    return in_graph(module, x, bridge.value_and_grad)


def forward_in_torch(module: nn.Module, x: torch.Tensor) -> Any:
    return torch.no_grad()(lambda: module(x))


def forward_in_graph(module: nn.Module, x: torch.Tensor) -> Any:
    net = bridge.cell(module)

    def forward(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    return functools.partial(ms.jit(forward), ms.Tensor(x.numpy()))


WAYS = {
    "PyTorch": in_torch,
    "graph": in_graph,
    "graph in one": in_one_graph,
    "PyTorch, forward": forward_in_torch,
    "graph, forward": forward_in_graph,
}


def resident(entry: str) -> int:
    """In KiB."""
    found = re.search(rf"{entry}:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def peak(way: str) -> int:
    """What the layers add to this process's memory at most, in KiB."""
    ms.set_device("CPU")
    WAYS[way](layers(8, 2), torch.ones(4, 8))()  # what a first step makes for good
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = resident("VmRSS")
    step = WAYS[way](layers(), torch.ones(512, 1024))
    for _ in range(3):
        step()
    return resident("VmHWM") - before


def measured(way: str) -> int:
    return int(subprocess.check_output([sys.executable, __file__, way], text=True).split()[-1])


@pytest.fixture(scope="module")
def peak_of_torch() -> int:
    return measured("PyTorch")


@pytest.mark.parametrize("way", ["graph", "graph in one"])
def test_a_step_needs_no_more_than_in_pytorch(way: str, peak_of_torch: int) -> None:
    assert measured(way) <= _LEEWAY * peak_of_torch


def test_a_graph_without_gradients_saves_nothing_for_them() -> None:
    saved = 512 * 1024 * 4 * 24 // 1024  # one of all 24 results
    assert measured("graph, forward") <= measured("PyTorch, forward") + saved // 2


@pytest.mark.usefixtures("own_programs")
@pytest.mark.parametrize("again", [False, True])
def test_a_graph_with_gradients_saves_after_one_without(again: bool) -> None:
    module, x = layers(128, 3), data(256, 128)
    net, given = bridge.cell(module), ms.Tensor(x)

    def forward(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    forward = ms.jit(forward)
    forward(given)
    differentiate = ms.value_and_grad(forward if again else net, None, net.trainable_params())
    for differentiated in (differentiate, ms.jit(differentiate)):
        forward(given)
        value, gradients = differentiated(given)
        expected = module(torch.from_numpy(x))
        own = torch.autograd.grad(expected.sum(), list(module.parameters()))
        assert torch.equal(torch.from_numpy(value.asnumpy()), expected.detach())
        for found, wanted in zip(gradients, own, strict=True):
            assert torch.equal(torch.from_numpy(found.asnumpy()), wanted)


@pytest.mark.usefixtures("own_programs")
def test_what_two_gradients_take_stays_until_the_second_has_run() -> None:
    module, x = layers(128, 3), data(256, 128)
    net = bridge.cell(module)

    @ms.jit
    def twice(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        value, differentiate = ms.vjp(net, x)
        return value, differentiate(value), differentiate(value * 2)

    value, *gradients = twice(ms.Tensor(x))
    given = torch.from_numpy(x).requires_grad_()
    expected = module(given)
    assert torch.equal(torch.from_numpy(value.asnumpy()), expected.detach())
    for factor, (gradient,) in enumerate(gradients, 1):
        own = torch.autograd.grad(expected, given, expected.detach() * factor, retain_graph=True)
        assert torch.equal(torch.from_numpy(gradient.asnumpy()), own[0])


@pytest.mark.usefixtures("own_programs")
def test_a_loop_saves_what_each_of_its_rounds_needs() -> None:
    module, x = layers(128, 2), data(256, 128)

    class Repeated(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.net = bridge.cell(module)

        def construct(self, x, count):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            done = ms.ops.zeros((), ms.int64)
            while done < count:
                x = self.net(x)
                done = done + 1
            return x

    net = Repeated()
    differentiate = ms.jit(ms.value_and_grad(net, 0, net.trainable_params()))
    for count in (3, 1):
        value, (gradient, of_weights) = differentiate(ms.Tensor(x), ms.Tensor(count))
        given = torch.from_numpy(x).requires_grad_()
        expected = given
        for _ in range(count):
            expected = module(expected)
        own = torch.autograd.grad(expected.sum(), [given, *module.parameters()])
        assert torch.equal(torch.from_numpy(value.asnumpy()), expected.detach())
        for found, wanted in zip((gradient, *of_weights), own, strict=True):
            assert torch.equal(torch.from_numpy(found.asnumpy()), wanted)


if __name__ == "__main__":
    print(peak(sys.argv[1]))
