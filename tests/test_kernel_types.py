"""C++ types that functions of extensions have: parameters, results, and arguments that are written to."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

from bridge import kernels

SOURCE = pathlib.Path(__file__).parent / "kernels" / "types.cpp"
X = np.array([[0.5, -1.25, 3.0], [2.0, 0.125, -4.0]], np.float32)

modes = pytest.mark.parametrize("wrap", [lambda function: function, ms.jit], ids=["PyNative", "graph"])


def declare(schema: str, results: Any = "x", **arguments: Any) -> kernels.KernelOperator:
    return kernels.extension(SOURCE, schema, results=results, **arguments)


# All of one source, so that they are one build.
weighted = declare(
    "weighted(Tensor x, int[] sizes, float[] weights, int[] pair, int[2] window, float[] range) -> Tensor"
)
stacked = declare("stacked(Tensor[] tensors, str how, str why) -> Tensor", lambda tensors, how, why: tensors[0])
with_bias = declare("with_bias(Tensor x, Tensor? bias=None) -> Tensor")
as_pair = declare("as_pair(Tensor x) -> (Tensor, Tensor)", "x, x")
as_array = declare("as_array(Tensor x) -> (Tensor, Tensor, Tensor)", "x, x, x")
as_optional = declare("as_optional(Tensor x) -> Tensor")
how_many = declare("how_many(Tensor x) -> int", None)
with_numbers = declare("with_numbers(Tensor x) -> (Tensor, float, bool)")
times = declare("times(Tensor x, float factor) -> Tensor", function="times<double>")
plus = declare(
    "plus(Tensor x, float y) -> Tensor", function="static_cast<at::Tensor (*)(const at::Tensor &, double)>(plus)"
)
named = declare("named(Tensor c, Tensor flat, float default) -> Tensor", "c")
fill_first = declare("fill_first(Tensor x, *, Tensor(a!) out, int count) -> int")
push = declare("push(Tensor(a!) queue, Tensor x) -> Tensor")
push_from_data = declare("push(Tensor(a!) queue, Tensor x) -> Tensor", None)


def equal(found: Any, expected: Any) -> None:
    result = found.asnumpy()
    np.testing.assert_array_equal(result, np.asarray(expected))
    assert result.dtype == np.asarray(expected).dtype


@modes
def test_lists_fit_vectors_arrays_tuples_and_pairs(wrap: Callable[..., Any]) -> None:
    def call(x):
        return weighted(x, [1, 2], [0.5, 0.25], [3, 4], 5, (1.5, 0.5))

    equal(wrap(call)(ms.Tensor(X)), (torch.tensor(X) * (3000 + 400 + 55 + 3 + 0.75 + 1)).numpy())


def test_a_list_of_another_length_is_refused() -> None:
    with pytest.raises(RuntimeError, match="custom::weighted: the function takes 2 values there, not 3"):
        weighted(ms.Tensor(X), [1], [0.5], [3, 4, 5], 5, (1.5, 0.5)).asnumpy()
    with pytest.raises(RuntimeError, match="4294967296 does not fit into the integer"):
        weighted(ms.Tensor(X), [2**32], [0.5], [3, 4], 5, (1.5, 0.5)).asnumpy()


@modes
def test_strings_and_lists_of_tensors_that_may_be_changed(wrap: Callable[..., Any]) -> None:
    def call(x):
        return stacked([x, x, x], "sum", "because"), stacked([x, x], "mean", "so")

    total, mean = wrap(call)(ms.Tensor(X))
    equal(total, 3 * X)
    equal(mean, X)


@modes
def test_none_is_an_undefined_tensor(wrap: Callable[..., Any]) -> None:
    def call(x):
        return with_bias(x), with_bias(x, x)

    without, with_one = wrap(call)(ms.Tensor(X))
    equal(without, X)
    equal(with_one, 2 * X)


@modes
def test_results_of_every_kind(wrap: Callable[..., Any]) -> None:
    def call(x):
        return *as_pair(x), *as_array(x), as_optional(x), how_many(x), *with_numbers(x)

    *tensors, count, doubled, tenth, truth = wrap(call)(ms.Tensor(X))
    for found, added in zip(tensors, (1, 2, 1, 2, 3, 1), strict=True):
        equal(found, X + np.float32(added))
    equal(count, np.array(6))
    equal(doubled, 2 * X)
    equal(tenth, np.array(0.1))
    equal(truth, np.array(True))


@modes
def test_a_template_and_an_overload_are_named_in_cpp(wrap: Callable[..., Any]) -> None:
    def call(x):
        return times(x, 3.0), plus(x, 0.5)

    tripled, moved = wrap(call)(ms.Tensor(X))
    equal(tripled, 3 * X)
    equal(moved, X + np.float32(0.5))


@modes
def test_an_argument_may_have_any_name(wrap: Callable[..., Any]) -> None:
    def call(x):
        return named(x, x, default=0.25)

    equal(wrap(call)(ms.Tensor(X)), X * np.float32(0.75))


@modes
def test_a_function_may_write_and_return(wrap: Callable[..., Any]) -> None:
    def call(queue, x):
        filled, count = fill_first(queue, count=1)
        moved, first = push(queue, x)
        return filled, count, moved, first

    queue, x = ms.Tensor(X), ms.Tensor(10 * X[0])
    filled, count, moved, first = wrap(call)(queue, x)
    equal(first, X[0])
    equal(filled, np.stack([X[0], 0 * X[0]]))
    equal(count, np.array(1))
    equal(moved, np.stack([X[1], 10 * X[0]]))
    equal(queue, X)
    if wrap is not ms.jit:
        equal(push_from_data(queue, x)[0], np.stack([X[1], 10 * X[0]]))


def test_the_same_on_pytorchs_tensors() -> None:
    queue = torch.tensor(X)
    moved, first = push.on_torch(queue, 10 * queue[0])
    assert torch.equal(moved, torch.stack([queue[1], 10 * queue[0]])) and torch.equal(first, queue[0])
    filled, count = fill_first.on_torch(queue, count=1)
    assert torch.equal(filled, torch.tensor(X) * torch.tensor([[1.0], [0.0]])) and count == 1


MISTAKES = [
    ("parameter of a type that nothing fits", "from_opaque(Tensor x, int o) -> Tensor", "",
     "argument 'o' is int in the schema, but of another type in the function"),
    ("result of a type that is none", "to_opaque(Tensor x) -> Tensor", "",
     "to_opaque returns something else than tensors and numbers, or pairs, tuples"),
    ("overload that is not named", "plus(Tensor x) -> Tensor", "",
     'overloaded .*\n  a function that is overloaded or a template has to be named exactly: function="f<float>"'),
    ("template that is not named", "times(Tensor x, float factor) -> Tensor", "",
     'overloaded .*\n  a function that is overloaded or a template has to be named exactly'),
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=[row[0] for row in MISTAKES])
def test_a_type_without_a_rule_has_a_sentence(mistake: tuple[str, str, str, str]) -> None:
    _, schema, function, message = mistake
    wrong = declare(schema, function=function)
    with pytest.raises(kernels.KernelError, match=f"^types: compiling types.cpp failed:\n  .*{message}"):
        wrong.build()
