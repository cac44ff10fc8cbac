"""Gradients: PyTorch's bits, in both modes, of any order; a random operator differentiates the draw it returned."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge import aten

MODES = {"pynative": lambda function: function, "graph": ms.jit}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return MODES[request.param]


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leaky_relu(op: Any, x: Any, w: Any) -> Any:  # saves an input
    return op.sum(op.leaky_relu(op.mm(x, w), 0.2))


def softmax(op: Any, x: Any, w: Any) -> Any:  # saves the result
    return op.sum(op.mul(op._softmax(op.mm(x, w), 1, False), op.mm(x, w)))


def broadcast(op: Any, x: Any, w: Any) -> Any:  # gradients are summed over broadcast dimensions
    return op.sum(op.mul(op.add(op.sum(x, [1], True), op.sum(w)), x))


def lists(op: Any, x: Any, w: Any) -> Any:  # a list of tensors in, a list out, of which some are unused
    return op.sum(op.split(op.cat([x, op.t(w)], 0), 2, 0)[1])


def several_results(op: Any, x: Any, w: Any) -> Any:  # the second result is not differentiable
    return op.sum(op.mul(op.max.dim(op.mm(x, w), 1)[0], op.native_layer_norm(x, [4], None, None, 1e-5)[1]))


def composite(op: Any, x: Any, w: Any) -> Any:
    return op.sum(op.layer_norm(op.linear(x, op.sin(x)), [3]))


def twice(op: Any, x: Any, w: Any) -> Any:  # one tensor in two places
    return op.sum(op.mul(op.mm(x, w), op.mm(x, w)))


@pytest.mark.parametrize("function", [leaky_relu, softmax, broadcast, lists, several_results, composite, twice])
def test_gradients_have_pytorchs_bits(function: Callable[..., Any], mode: Callable[..., Any]) -> None:
    x, w = data(3, 4), data(4, 5, seed=1)

    def loss(x, w):
        return function(aten, x, w)

    found = mode(ms.grad(loss, (0, 1)))(ms.Tensor(x), ms.Tensor(w))
    leaves = [torch.from_numpy(a).requires_grad_() for a in (x, w)]
    expected = torch.autograd.grad(function(torch.ops.aten, *leaves), leaves, allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        bits = np.zeros(one.shape, np.float32) if other is None else other.numpy()
        np.testing.assert_array_equal(one.asnumpy(), bits)


def cube(x):
    return aten.mul(aten.mul(x, x), aten.sin(x))


def second(x):
    return ms.grad(cube)(x)


def third(x):
    return ms.grad(second)(x)


@pytest.mark.parametrize(("derivative", "order"), [(second, 2), (third, 3)])
def test_higher_orders(derivative: Callable[..., Any], order: int, mode: Callable[..., Any]) -> None:
    found = mode(ms.grad(derivative))(ms.Tensor(np.float64(0.7)))
    x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    expected = x * x * torch.sin(x)
    for _ in range(order):
        (expected,) = torch.autograd.grad(expected, x, create_graph=True)
    # MindSpore adds the parts of a gradient in an order of its own: float64 round-off.
    np.testing.assert_allclose(found.asnumpy(), expected.detach().numpy(), rtol=1e-13)


def dropped(x):
    return aten.sum(aten.dropout(x, 0.5, True))


def test_the_gradient_belongs_to_the_draw(mode: Callable[..., Any]) -> None:
    x = ms.Tensor(data(8, 8))
    bridge.manual_seed(1)
    value, gradient = mode(ms.value_and_grad(dropped))(x)
    assert set(np.unique(gradient.asnumpy())) == {0.0, 2.0}
    # A sum in another order than PyTorch's: float32 round-off.
    np.testing.assert_allclose((gradient.asnumpy() * x.asnumpy()).sum(), value.asnumpy(), rtol=1e-5)


def test_differentiating_does_not_draw_more() -> None:
    x = ms.Tensor(data(4, 4))
    bridge.manual_seed(2)
    ms.grad(dropped)(x)
    after_gradient = aten.rand([3]).asnumpy()
    bridge.manual_seed(2)
    dropped(x)
    np.testing.assert_array_equal(after_gradient, aten.rand([3]).asnumpy())


def selected(x, mask):
    return aten.sum(aten.mul(aten.masked_select(x, mask), 3.0))


def test_results_of_data_dependent_shape_have_gradients() -> None:
    x = data(3, 4)
    gradient = ms.grad(selected)(ms.Tensor(x), ms.Tensor(x > 0))
    np.testing.assert_array_equal(gradient.asnumpy(), np.where(x > 0, np.float32(3), np.float32(0)))


def chosen(x):
    return aten.argmax(x)


def test_no_derivative_is_an_error_that_names_the_operator(mode: Callable[..., Any]) -> None:
    with pytest.raises(RuntimeError, match=r"aten\.argmax is not differentiable"):
        mode(ms.grad(chosen))(ms.Tensor(data(3)))


def test_integer_inputs_have_no_gradient(mode: Callable[..., Any]) -> None:
    def rows(x, index):
        return aten.sum(aten.index_select(x, 0, index))

    gradient = mode(ms.grad(rows))(ms.Tensor(data(4, 2)), ms.Tensor([1, 1, 3], ms.int64))
    np.testing.assert_array_equal(gradient.asnumpy(), [[0, 0], [2, 2], [0, 0], [1, 1]])


def test_running_statistics_are_updated_once() -> None:
    x, mean, var = ms.Tensor(data(6, 4)), ms.Tensor(np.zeros(4, np.float32)), ms.Tensor(np.ones(4, np.float32))

    def normed(x):
        return aten.sum(aten.mul(aten.batch_norm(x, None, None, mean, var, True, 0.1, 1e-5, False), x))

    ms.grad(normed)(x)
    expected = torch.zeros(4)
    torch.batch_norm(torch.from_numpy(x.asnumpy()), None, None, expected, torch.ones(4), True, 0.1, 1e-5, False)
    np.testing.assert_array_equal(mean.asnumpy(), expected.numpy())
