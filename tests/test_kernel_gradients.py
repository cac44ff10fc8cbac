"""Gradients of kernels of one's own, as they are written: with None, with sizes, with tensors left out."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from bridge import aten, kernels

SOURCE = pathlib.Path(__file__).parent / "kernels" / "types.cpp"
X = np.array([[0.5, -1.25, 3.0], [2.0, 0.125, -4.0]], np.float32)
INDEX = np.array([1, 1, 0], np.int64)

modes = pytest.mark.parametrize("wrap", [lambda function: function, ms.jit], ids=["PyNative", "graph"])


def gather_gradient(x, index, weight, out, dout):
    return aten.index_add(aten.zeros_like(x), 0, index, dout), None


def doubled_gradient(a, b, out, dout):
    return None, aten.mul(dout, a)


def declare(schema: str, results: Any, gradient: Any) -> kernels.KernelOperator:
    return kernels.extension(SOURCE, schema, results=results, gradient=gradient)


def rows_like(x, index, weight=None):
    return x.new_empty(index.shape[0], x.shape[1])


# All of one source, so that they are one build.
GATHER = "gather_rows(Tensor x, Tensor index, Tensor? weight=None) -> Tensor"
PRODUCT = "product(Tensor a, Tensor b) -> Tensor"
by_function = declare(GATHER, rows_like, gather_gradient)
by_line = declare(GATHER, rows_like, "x, index: gather_rows_backward(grad, index, x.shape[0])")
by_aten = declare(GATHER, rows_like, "x: aten.index_select_backward(grad, x.shape, 0, index), index: None")
half_a_line = declare(PRODUCT, "a", "a: aten.mul(grad, b)")
half_a_function = declare(PRODUCT, "a", doubled_gradient)
without = declare(PRODUCT, "a", None)
with_lambda = declare(PRODUCT, "a", lambda a, b, out, dout: (dout * b, dout * a))
LAMBDA = lambda a, b, out, dout: (dout * b, dout * a)  # noqa: E731  # on a line of its own MindSpore can read it
with_readable_lambda = declare(PRODUCT, "a", LAMBDA)


def equal(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found.asnumpy(), expected)


@modes
@pytest.mark.parametrize("gather", [by_function, by_line, by_aten], ids=["function", "line", "ATen"])
def test_integers_have_no_gradient(wrap: Callable[..., Any], gather: Any) -> None:
    weight = ms.Tensor(np.arange(9, dtype=np.float32).reshape(3, 3))

    def total(x, index):
        return (gather(x, index) * weight).sum()

    expected = np.stack([weight.asnumpy()[2], weight.asnumpy()[0] + weight.asnumpy()[1]])
    equal(wrap(ms.grad(total))(ms.Tensor(X), ms.Tensor(INDEX)), expected)


@modes
def test_a_tensor_that_is_left_out_matters_only_if_it_is_differentiated(wrap: Callable[..., Any]) -> None:
    def total(a, b):
        return half_a_line(a, b).sum()

    a, b = ms.Tensor(X), ms.Tensor(2 * X)
    equal(wrap(ms.grad(total))(a, b), 2 * X)
    with pytest.raises(RuntimeError, match=r"custom::product.* has no gradient for 'b': give one in gradient="):
        wrap(ms.grad(total, grad_position=1))(a, b).asnumpy()


@modes
def test_a_kernel_without_a_gradient_matters_only_if_it_is_differentiated(wrap: Callable[..., Any]) -> None:
    def total(a, b):
        return (without(b, b) * a).sum()

    a, b = ms.Tensor(X), ms.Tensor(2 * X)
    equal(wrap(ms.grad(total))(a, b), 4 * X * X)
    with pytest.raises(RuntimeError, match=r"custom::product.* has no gradient: declare one with gradient="):
        wrap(ms.grad(total, grad_position=1))(a, b).asnumpy()


@modes
def test_none_stands_for_zeros(wrap: Callable[..., Any]) -> None:
    def total(a, b):
        return half_a_function(a, b).sum()

    found = wrap(ms.grad(total, grad_position=(0, 1)))(ms.Tensor(X), ms.Tensor(2 * X))
    equal(found[0], 0 * X)
    equal(found[1], X)


@modes
@pytest.mark.parametrize("product", [with_lambda, with_readable_lambda], ids=["in a call", "on its own"])
def test_lambdas(wrap: Callable[..., Any], product: Any) -> None:
    def total(a, b):
        return product(a, b).sum()

    a, b = ms.Tensor(X), ms.Tensor(2 * X)
    if wrap is ms.jit and product is with_lambda:
        with pytest.raises(ValueError, match=r"is a lambda in the midst of a line, .* a def of its own"):
            wrap(ms.grad(total))(a, b)
    else:
        equal(wrap(ms.grad(total))(a, b), 2 * X)


def test_a_size_that_only_the_run_tells_is_refused_in_a_line() -> None:
    class Net(ms.nn.Cell):
        @ms.jit
        def construct(self, x, index):
            return ms.grad(lambda x: by_line(x, index).sum())(x)

    net = Net()
    net.set_inputs(ms.Tensor(shape=[None, 3], dtype=ms.float32), ms.Tensor(INDEX))
    with pytest.raises(ValueError, match="uses a size of 'x' that is known only when the graph runs"):
        net(ms.Tensor(X), ms.Tensor(INDEX))
