"""What MindSpore's own things do inside bridge.fuse and bridge.value_and_grad: what they are for, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch as pytorch
from mindspore import Tensor, ops
from mindspore.ops import is_floating_point, stop_gradient

import bridge
from bridge import aten, nn, torch
from bridge.nn import functional as F
from shared import data

pytestmark = pytest.mark.usefixtures("context_mode")


def numbers(*shape: int) -> ms.Tensor:
    return ms.Tensor(data(*shape))


def stops(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return torch.sum(torch.mul(ops.stop_gradient(x), torch.mul(stop_gradient(x), x)))


class ReverseGradient(nn.Module):
    def construct(self, x, factor=1.0):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return torch.mul(x, factor)

    def bprop(self, x, factor, out, dout):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return torch.mul(torch.neg(dout), torch.mul(out, 3.0)), 0.0


class Reverses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reverse = ReverseGradient()

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return torch.sum(torch.mul(self.reverse(torch.exp(x), 2.0), x))


class Masks(nn.Module):
    """Ported code asks for dtypes and classes."""

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        mask = torch.gt(x, 0)
        scores = torch.masked_fill(x, mask, -2.0) if mask.dtype == torch.bool else torch.exp(x)
        if x.dtype in (ms.float32, ms.float16) and x.dtype != ms.bool_ and isinstance(x, torch.Tensor):
            scores = torch.mul(scores, 3.0)
        return torch.sum(F.softmax(scores, dim=0, dtype=torch.float64))


class AsksForTensors(nn.Module):
    """As code does that takes numbers too."""

    def construct(self, x, factor=2.0):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        if isinstance(x, ms.Tensor) and isinstance(x, Tensor) and not isinstance(factor, (Tensor, ops.Primitive)):
            x = torch.mul(x, factor)
        if ops.is_tensor(x) and is_floating_point(x) and ops.is_floating_point(x):
            x = torch.exp(x)
        return torch.sum(x)


def fused_gradient(function: Any) -> Any:
    fused = bridge.fuse(function)

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return fused(x)

    return ms.grad(call)  # of which MindSpore 2.8 takes functions only


WAYS: list[Callable[[Any], Any]] = [
    fused_gradient,
    lambda function: lambda x: bridge.value_and_grad(function, 0)(x)[1],
]


@pytest.mark.parametrize("way", WAYS, ids=["fuse", "value_and_grad"])
@pytest.mark.parametrize(
    "make", [lambda: stops, Reverses, Masks, AsksForTensors], ids=["stop_gradient", "bprop", "dtypes", "tensors"]
)
def test_they_do_what_they_are_for(make: Any, way: Any) -> None:
    x, function = numbers(3, 4), make()
    assert np.array_equal(way(function)(x).asnumpy(), ms.grad(function)(x).asnumpy())


def cubes(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return torch.sum(torch.pow(x, 3))


inner = bridge.value_and_grad(cubes, 0)


def penalized(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    value, gradient = inner(x)
    return torch.add(value, torch.sum(torch.pow(gradient, 2)))


@pytest.mark.parametrize("way", WAYS, ids=["fuse", "value_and_grad"])
def test_a_gradient_has_a_gradient_inside_another(way: Any) -> None:
    x = numbers(5)
    own = pytorch.from_numpy(x.asnumpy()).requires_grad_()
    (gradient,) = pytorch.autograd.grad(own.pow(3).sum(), [own], create_graph=True)
    (expected,) = pytorch.autograd.grad(own.pow(3).sum() + gradient.pow(2).sum(), [own])
    np.testing.assert_allclose(way(penalized)(x).asnumpy(), expected.numpy(), rtol=1e-6)  # sums of two gradients


def test_without_gradients() -> None:
    def function(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        with ms._no_grad():
            y = torch.exp(x)
        return torch.sum(torch.mul(y, x))

    if ms.get_context("mode") == ms.PYNATIVE_MODE:
        x = numbers(3)
        assert np.array_equal(fused_gradient(function)(x).asnumpy(), aten.exp(x).asnumpy())


class Casts(nn.Module):
    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.exp(x)


class Calls(nn.Module):
    def __call__(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.exp(x)


def cast() -> Any:
    return Casts().to_float(ms.float16)


def auto() -> Any:
    return ms.amp.auto_mixed_precision(Casts(), "auto")


def recomputed() -> Any:
    cell = Casts()
    cell.recompute()
    return cell


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (recomputed, r"Casts has recompute\(\)"),
        (cast, "Casts has to_float or mindspore.amp"),
        (auto, "Casts has to_float or mindspore.amp"),
        (Calls, "Calls has a __call__ of its own"),
    ],
)
def test_cells_whose_call_does_more_are_refused(make: Any, words: str) -> None:
    for wrap in (bridge.fuse, lambda cell: bridge.value_and_grad(cell, 0)):
        with pytest.raises(RuntimeError, match=words):
            wrap(make())


def takes_gradient(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return ms.grad(cubes)(x)


def inserts(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return ops.InsertGradientOf(cubes)(x)


@ms.jit
def jitted(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return torch.exp(x)


@pytest.mark.parametrize(
    ("function", "words"),
    [(takes_gradient, "mindspore.grad"), (jitted, "mindspore.jit"), (inserts, "ops.InsertGradientOf")],
)
def test_what_would_do_nothing_is_refused(function: Any, words: str) -> None:
    with pytest.raises(RuntimeError, match=f"{words}.* does not run inside bridge.fuse"):
        bridge.fuse(function)(numbers(3)).asnumpy()


def test_a_tensor_with_a_gradient_is_an_argument() -> None:
    if ms.get_context("mode") != ms.PYNATIVE_MODE:
        return  # a graph has no such tensors outside of it
    net = bridge.cell(pytorch.nn.Linear(3, 3))

    def around(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        features = net(x)
        return bridge.fuse(lambda z: torch.sum(torch.mul(z, features)))(x)

    with pytest.raises(RuntimeError, match="finds a tensor of shape"):
        ms.grad(around, None, net.trainable_params())(numbers(3))


def test_hooks_of_parameters_are_refused() -> None:
    net = bridge.cell(pytorch.nn.Linear(3, 2))
    differentiate = bridge.value_and_grad(net, None, net.trainable_params())
    differentiate(numbers(2, 3))
    handle = net.weight.register_hook(lambda gradient: gradient * 2)
    if ms.get_context("mode") == ms.PYNATIVE_MODE:
        with pytest.raises(RuntimeError, match=r"the Parameter weight has hooks of MindSpore's"):
            differentiate(numbers(2, 3))
    handle.remove()
    differentiate(numbers(2, 3))


class Counts(nn.Module):
    """MindSpore says that an integer requires a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.steps = ms.Parameter(ms.Tensor(0, ms.int32), name="steps")

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return torch.sum(torch.mul(x, self.weight))


def test_integers_may_be_parameters() -> None:
    net, x = Counts(), numbers(2, 4)
    assert bridge.fuse(net)(x) == net(x)
    _, (gradient,) = bridge.value_and_grad(net, None, [net.weight])(x)
    assert np.array_equal(gradient.asnumpy(), ms.grad(net, None, [net.weight])(x)[0].asnumpy())


@pytest.mark.parametrize("position", [0.0, (), -1, (0, 0), "0", True, (0.0,)])
def test_positions_are_numbers(position: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"bridge\.value_and_grad: grad_position"):
        bridge.value_and_grad(cubes, position)


def test_a_dtype_that_mindspore_has_not_is_no_result() -> None:
    net = bridge.cell(ToEightBits())

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    for run in (net, call):
        with pytest.raises((RuntimeError, TypeError), match="MindSpore has no dtype for PyTorch's"):
            run(numbers(3))


class ToEightBits(pytorch.nn.Module):
    def forward(self, x: pytorch.Tensor) -> pytorch.Tensor:
        return x.to(pytorch.float8_e4m3fnuz)
