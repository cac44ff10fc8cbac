"""Operators that other projects register with PyTorch, as they are: without dispatch keys, without meta functions."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

from bridge import kernels

SOURCE = pathlib.Path(__file__).parent / "kernels" / "catch_all.cpp"
X = np.array([[0.5, -1.25, 3.0], [2.0, 0.125, -4.0]], np.float32)

modes = pytest.mark.parametrize("wrap", [lambda function: function, ms.jit], ids=["PyNative", "graph"])

# Declared of the same sources in another form: one build has both.
plain = kernels.extension(
    SOURCE, "plain(Tensor x, float factor) -> Tensor", results="x", gradient="x: plain_backward(grad, factor)"
)


@pytest.fixture(scope="module", autouse=True)
def loaded() -> Any:
    """The library, loaded as `registered` loads it."""
    return kernels.registered("bridge_foreign::twice", SOURCE)


def theirs(name: str) -> Any:
    return getattr(torch.ops.bridge_foreign, name)


def equal(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found.asnumpy(), expected.detach().numpy())


def test_a_kernel_without_a_dispatch_key_is_not_run_without_data() -> None:
    equal(kernels.registered("bridge_foreign::twice")(ms.Tensor(X)), 2 * torch.tensor(X))
    equal(kernels.registered("bridge_foreign_old::twice")(ms.Tensor(X)), 2 * torch.tensor(X))
    positive = kernels.registered("bridge_foreign::positive")
    for x in (X, -X):
        equal(positive(ms.Tensor(x)), theirs("positive")(torch.tensor(x)))


def test_its_gradient_is_that_of_its_autograd() -> None:
    twice = kernels.registered("bridge_foreign::twice")
    np.testing.assert_array_equal(ms.grad(lambda x: twice(x).sum())(ms.Tensor(X)).asnumpy(), np.full_like(X, 5))
    square_sum = kernels.registered("bridge_foreign::square_sum")
    x = torch.tensor(X, requires_grad=True)
    theirs("square_sum")(x, 0.5).backward()
    equal(ms.grad(lambda x: square_sum(x, 0.5))(ms.Tensor(X)), x.grad)


@modes
def test_results_tell_a_graph_the_shapes(wrap: Callable[..., Any]) -> None:
    twice = kernels.registered("bridge_foreign::twice", results="_0")
    square_sum = kernels.registered("bridge_foreign::square_sum", results=lambda x, factor: x.new_empty(()))

    def total(x):
        return square_sum(twice(x), 3.0)

    x = torch.tensor(X, requires_grad=True)
    expected = theirs("square_sum")(theirs("twice")(x), 3.0)
    expected.backward()
    equal(wrap(total)(ms.Tensor(X)), expected)
    equal(wrap(ms.grad(total))(ms.Tensor(X)), x.grad)


@modes
def test_results_allow_a_gradient_of_ones_own(wrap: Callable[..., Any]) -> None:
    twice = kernels.registered("bridge_foreign::twice", results="_0", gradient="_0: aten.mul(grad, 7)")

    def total(x):
        return twice(x).sum()

    np.testing.assert_array_equal(wrap(ms.grad(total))(ms.Tensor(X)).asnumpy(), np.full_like(X, 7))


def test_a_graph_says_what_is_missing() -> None:
    twice = kernels.registered("bridge_foreign::twice")

    @ms.jit
    def call(x):
        return twice(x)

    with pytest.raises(RuntimeError, match=r"twice works in PyNative mode only: nothing tells .* give results="):
        call(ms.Tensor(X))


def test_a_meta_function_that_comes_later_is_found() -> None:
    library = torch.library.Library("bridge_foreign_later", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x + x, "CPU")
    double = kernels.registered("bridge_foreign_later::double")

    @ms.jit
    def call(x):
        return double(x)

    equal(double(ms.Tensor(X)), 2 * torch.tensor(X))
    with pytest.raises(RuntimeError, match="works in PyNative mode only"):
        call(ms.Tensor(X))
    torch.library.register_fake("bridge_foreign_later::double", torch.empty_like)

    @ms.jit
    def call_again(x):
        return double(x)

    equal(call_again(ms.Tensor(X)), 2 * torch.tensor(X))


def test_a_composite_in_python_over_a_kernel_without_meta_function() -> None:
    library = torch.library.Library("bridge_foreign_outer", "DEF")
    library.define("outer(Tensor x) -> Tensor")
    library.impl("outer", lambda x: theirs("twice")(x) + 1, "CompositeImplicitAutograd")
    outer = kernels.registered("bridge_foreign_outer::outer")
    equal(outer(ms.Tensor(X)), 2 * torch.tensor(X) + 1)
    np.testing.assert_array_equal(ms.grad(lambda x: outer(x).sum())(ms.Tensor(X)).asnumpy(), np.full_like(X, 5))


@modes
def test_a_custom_op_in_python(wrap: Callable[..., Any]) -> None:
    name = f"bridge_foreign_python::cube_{'graph' if wrap is ms.jit else 'pynative'}"

    @torch.library.custom_op(name, mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() ** 3)

    cube.register_autograd(
        lambda ctx, grad: 3 * grad * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    ours = kernels.registered(name)

    def total(x):
        return ours(x).sum()

    if wrap is not ms.jit:  # without a fake function, a run tells the shapes
        equal(ours(ms.Tensor(X)), torch.tensor(X) ** 3)
    cube.register_fake(torch.empty_like)
    equal(wrap(total)(ms.Tensor(X)), (torch.tensor(X) ** 3).sum())
    equal(wrap(ms.grad(total))(ms.Tensor(X)), 3 * torch.tensor(X) ** 2)


@modes
def test_operators_that_write(wrap: Callable[..., Any]) -> None:
    scale = kernels.registered("bridge_foreign::scale_")
    shift = kernels.registered("bridge_foreign::shift_")
    accumulate = kernels.registered("bridge_foreign::accumulate", results=lambda total, x: x.new_empty(()))

    def call(x, y):
        total, largest = accumulate(scale(x, 3.0), shift(x, y))
        return total, largest

    def objective(x, y):
        total, largest = accumulate(scale(x, 3.0), shift(x, y))
        return (total * total).sum() + largest

    x, y = (torch.tensor(v, requires_grad=True) for v in (X, X[::-1].copy()))
    shifted = x + y
    expected = x * 3 + shifted
    ((expected * expected).sum() + shifted.max()).backward()
    ours = ms.Tensor(X), ms.Tensor(X[::-1].copy())
    total, largest = wrap(call)(*ours)
    equal(total, expected)
    equal(largest, shifted.max())
    for found, wanted in zip(wrap(ms.grad(objective, grad_position=(0, 1)))(*ours), (x.grad, y.grad), strict=True):
        equal(found, wanted)
    equal(ours[0], torch.tensor(X))


def test_operators_that_write_without_results() -> None:
    equal(kernels.registered("bridge_foreign::scale_")(ms.Tensor(X), 3.0), torch.tensor(X) * 3)
    total, largest = kernels.registered("bridge_foreign::accumulate")(ms.Tensor(X), ms.Tensor(X))
    equal(total, 2 * torch.tensor(X))
    equal(largest, torch.tensor(X).max())


def test_types_that_mindspore_does_not_have() -> None:
    with pytest.raises(ValueError, match=r"bridge_foreign::count has an argument '_0' of the type Dict\[str, int\]"):
        kernels.registered("bridge_foreign::count")


@modes
def test_the_same_sources_in_another_form_after_they_were_loaded(
    wrap: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They register operators, which a second library of them would do again."""
    renamed = kernels.extension(
        SOURCE, "plain(Tensor data, float factor) -> Tensor", results="data",
        gradient="data: plain_backward(grad, factor)",
    )  # fmt: skip

    def total(x):
        return (plain(x, 2.0) + renamed(x, 3.0)).sum()

    equal(wrap(total)(ms.Tensor(X)), (torch.tensor(X) * 2 + torch.tensor(X) * 3).sum())
    equal(wrap(ms.grad(total))(ms.Tensor(X)), torch.full(X.shape, 5.0))
