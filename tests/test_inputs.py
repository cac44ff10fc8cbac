"""A grid of 30 operators over unusual inputs: layouts, ranks, empty ones, NaN and infinities, every shared dtype.

The reference is PyTorch on the same input, and results have its bits; any NaN equals any NaN. PyTorch sees every input
contiguous, as MindSpore's kernels do, so that both take the same path. Where PyTorch refuses an input, so must the
bridge.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge import aten
from bridge._mindspore import wait
from bridge.op import dtypes
from bridge.primitive.tensors import from_torch, torch_view
from conformance.compare import flatten

Call = Callable[..., Any]


# Each takes one tensor; `op` is bridge.aten or torch.ops.aten. MindSpore compiles the sources of these functions too.
def leaky_relu(op, x):
    return op.leaky_relu(x, 0.1)


def relu(op, x):
    return op.relu(x)


def neg(op, x):
    return op.neg(x)


def exp(op, x):
    return op.exp(x)


def sqrt(op, x):
    return op.sqrt(x)


def sign(op, x):
    return op.sign(x)


def logical_not(op, x):
    return op.logical_not(x)


def isnan(op, x):
    return op.isnan(x)


def gelu(op, x):
    return op.gelu(x)


def sigmoid(op, x):
    return op.sigmoid(x)


def add(op, x):
    return op.add(x, x)


def add_number(op, x):
    return op.add(x, 2)


def mul(op, x):
    return op.mul(x, x)


def div(op, x):
    return op.div(x, x)


def maximum(op, x):
    return op.maximum(x, x)


def equal_elements(op, x):
    return op.eq(x, x)


def where(op, x):
    return op.where(op.eq(x, x), x, op.neg(x))


def clamp(op, x):
    return op.clamp(x, 0, 1)


def sum_all(op, x):
    return op.sum(x)


def sum_last(op, x):
    return op.sum(x, [-1])


def mean_last(op, x):
    return op.mean(x, [-1], True)


def amax_first(op, x):
    return op.amax(x, [0])


def softmax(op, x):
    return op.softmax(x, -1)


def cumsum(op, x):
    return op.cumsum(x, 0)


def sort(op, x):
    return op.sort(x, -1)


def flip(op, x):
    return op.flip(x, [0])


def cat(op, x):
    return op.cat([x, x], 0)


def unsqueeze(op, x):
    return op.unsqueeze(x, 0)


def transpose(op, x):
    return op.transpose(x, 0, -1)


def clone(op, x):
    return op.clone(x)


OPERATORS: list[Call] = [
    leaky_relu, relu, neg, exp, sqrt, sign, logical_not, isnan, gelu, sigmoid, add, add_number, mul, div, maximum,
    equal_elements, where, clamp, sum_all, sum_last, mean_last, amax_first, softmax, cumsum, sort, flip, cat, unsqueeze,
    transpose, clone,
]  # fmt: skip

BASE = np.random.default_rng(0).standard_normal((4, 6, 3)).astype(np.float32)


def array(values: Any) -> ms.Tensor:
    return ms.Tensor(values)


# Each makes a MindSpore tensor.
INPUTS: dict[str, Callable[[], ms.Tensor]] = {
    "contiguous": lambda: array(BASE),
    "transposed": lambda: array(BASE).transpose(2, 0, 1),
    "transposed by mint": lambda: ms.mint.transpose(array(BASE), 0, 2),
    "strided slice": lambda: array(BASE)[::2, 1::2],
    "slice with an offset": lambda: array(BASE)[2],
    "narrow": lambda: ms.mint.narrow(array(BASE), 1, 2, 3),
    "expanded": lambda: array(BASE[:, :1]).expand((4, 6, 3)),
    "expanded number": lambda: array(np.float32(1.5)).expand((3, 4)),
    "0-d": lambda: array(np.float32(-2.5)),
    "empty": lambda: array(np.zeros((0,), np.float32)),
    "empty in the middle": lambda: array(np.zeros((3, 0, 2), np.float32)),
    "empty at the end": lambda: array(np.zeros((2, 0), np.float32)),
    "one element": lambda: array(np.full((1,), 3, np.float32)),
    "8-d": lambda: array(np.arange(384, dtype=np.float32).reshape(2, 1, 3, 2, 1, 4, 2, 4)),
    "NaN and infinities": lambda: array(
        np.array([[np.nan, np.inf, -np.inf, 0.0], [-0.0, 1e-45, 3.4e38, -3.4e38]], np.float32)
    ),
    "all NaN": lambda: array(np.full((3, 3), np.nan, np.float32)),
    "Parameter": lambda: ms.Parameter(array(BASE)),
}

# Values that every dtype of its kind holds.
SMALL = np.array([[0, 1, 2, 3], [7, 5, 1, 0]])


def of_dtype(name: str) -> torch.Tensor:
    dtype = dtypes.TORCH_DTYPES[name]
    values = torch.tensor(SMALL)
    if dtype.is_complex:
        values = torch.complex(values.double(), -values.double().flip(0))
    elif dtype.is_signed:
        values = values - 3
    return values.to(dtype)


def as_torch(tensor: ms.Tensor) -> torch.Tensor:
    """PyTorch's contiguous copy of a MindSpore tensor of any shared dtype."""
    tensor = tensor.contiguous()
    wait()
    return torch_view(tensor).clone()


def check_same(result: ms.Tensor, expected: torch.Tensor) -> None:
    assert tuple(result.shape) == tuple(expected.shape)
    assert dtypes.to_torch(result.dtype) == expected.dtype
    found = as_torch(result)
    expected = expected.contiguous()
    if expected.is_complex():
        found, expected = torch.view_as_real(found), torch.view_as_real(expected)
    if expected.is_floating_point():
        missing = torch.isnan(expected.float())
        assert torch.equal(torch.isnan(found.float()), missing)
        found, expected = found.float().nan_to_num(0.0), expected.float().nan_to_num(0.0)  # exact: to a wider dtype
        assert torch.equal(torch.signbit(found)[~missing], torch.signbit(expected)[~missing])  # 0.0 is not -0.0
    if expected.dtype == torch.float64:
        assert torch.equal(found.view(torch.int64), expected.view(torch.int64))
    else:
        assert torch.equal(found, expected), (found, expected)


def check(call: Callable[[ms.Tensor], Any], reference: Callable[[torch.Tensor], Any], x: ms.Tensor) -> bool:
    """Compare one call; returns whether PyTorch takes the input at all."""
    try:
        expected = flatten(reference(as_torch(x)))
    except (RuntimeError, TypeError, ValueError, IndexError):
        with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)):
            for result in flatten(call(x)):
                as_torch(result)
        return False
    results = flatten(call(x))
    assert len(results) == len(expected)
    for result, want in zip(results, expected, strict=True):
        check_same(result, want)
    return True


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_input(operator: Call, kind: str) -> None:
    check(lambda x: operator(aten, x), lambda x: operator(torch.ops.aten, x), INPUTS[kind]())


@pytest.mark.parametrize("dtype", dtypes.TORCH_DTYPES)
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_dtype(operator: Call, dtype: str) -> None:
    check(lambda x: operator(aten, x), lambda x: operator(torch.ops.aten, x), from_torch(of_dtype(dtype)))


@pytest.mark.parametrize("dtype", dtypes.TORCH_DTYPES)
def test_every_dtype_passes_through(dtype: str) -> None:
    assert check(lambda x: clone(aten, x), lambda x: clone(torch.ops.aten, x), from_torch(of_dtype(dtype)))


def test_most_of_the_grid_is_compared_and_not_refused() -> None:
    taken = sum(
        check(partial(operator, aten), partial(operator, torch.ops.aten), INPUTS["8-d"]()) for operator in OPERATORS
    )
    assert taken == len(OPERATORS)


# Calls of which PyTorch's own inference tells another dtype or shape than its kernel gives, or which it refuses.
VECTOR, HALF = torch.ones(6), torch.arange(18).reshape(1, 6, 3).to(torch.float16)
NOT_AS_INFERRED: dict[str, tuple[Call, list[torch.Tensor]]] = {
    "addr of a float64 number": (lambda op, *x: op.addr(*x), [torch.tensor(0.1, dtype=torch.float64), VECTOR, VECTOR]),
    "block_diag of a float64 number": (
        lambda op, *x: op.block_diag(list(x)),
        [VECTOR, torch.tensor(0.1, dtype=torch.float64)],
    ),
    "native_group_norm of float16 with float32 weights": (
        lambda op, *x: op.native_group_norm(*x, 1, 6, 3, 2, 1e-5),
        [HALF, VECTOR, VECTOR],
    ),
    "huber_loss of float16 and float32": (lambda op, *x: op.huber_loss(*x, 0), [HALF.flatten()[:6], VECTOR]),
    "soft_margin_loss of float32 and float64": (lambda op, *x: op.soft_margin_loss(*x), [VECTOR, VECTOR.double()]),
    "upsample_nearest2d of no images": (
        lambda op, *x: op.upsample_nearest2d.vec(*x, [3, 3], None),
        [torch.empty(0, 3, 4, 4)],
    ),
    "pixel_unshuffle of no images": (lambda op, *x: op.pixel_unshuffle(*x, 3), [torch.empty(0, 1, 6, 6)]),
    "native_dropout of nothing": (lambda op, *x: op.native_dropout(*x, 0.5, True), [torch.empty(0)]),
}


@pytest.mark.parametrize("case", NOT_AS_INFERRED)
def test_results_are_the_kernels_where_inference_is_wrong(case: str) -> None:
    call, inputs = NOT_AS_INFERRED[case]
    results = flatten(call(aten, *map(from_torch, inputs)))
    for result, expected in zip(results, flatten(call(torch.ops.aten, *inputs)), strict=True):
        check_same(result, expected)


# The same in graph mode, which cannot be handed bridge.aten as a value.
@ms.jit
def graph_leaky_relu(x):
    return aten.leaky_relu(x, 0.1)


@ms.jit
def graph_add_number(x):
    return aten.add(x, 2)


@ms.jit
def graph_sum_all(x):
    return aten.sum(x)


@ms.jit
def graph_softmax(x):
    return aten.softmax(x, -1)


@ms.jit
def graph_sort(x):
    return aten.sort(x, -1)


@ms.jit
def graph_where(x):
    return aten.where(aten.eq(x, x), x, aten.neg(x))


@ms.jit
def graph_clone(x):
    return aten.clone(x)


@ms.jit
def graph_add(x):
    return aten.add(x, x)


IN_GRAPH = [
    (graph_leaky_relu, leaky_relu),
    (graph_add_number, add_number),
    (graph_sum_all, sum_all),
    (graph_softmax, softmax),
    (graph_sort, sort),
    (graph_where, where),
]
GRAPH_INPUTS = [
    "contiguous",
    "transposed",
    "strided slice",
    "expanded",
    "0-d",
    "empty in the middle",
    "8-d",
    "NaN and infinities",
]


@pytest.mark.parametrize("kind", GRAPH_INPUTS)
@pytest.mark.parametrize(("graph", "operator"), IN_GRAPH, ids=[operator.__name__ for _, operator in IN_GRAPH])
def test_input_in_graph_mode(graph: Call, operator: Call, kind: str) -> None:
    check(graph, lambda x: operator(torch.ops.aten, x), INPUTS[kind]())


@pytest.mark.parametrize("dtype", dtypes.TORCH_DTYPES)
def test_dtype_in_graph_mode(dtype: str) -> None:
    x = from_torch(of_dtype(dtype))
    assert check(graph_clone, lambda x: clone(torch.ops.aten, x), x)
    check(graph_add, lambda x: add(torch.ops.aten, x), x)


@ms.jit
def graph_reuses_a_scalar_result(x):
    return aten.div(x, aten.sum(x)), aten.add(x, aten.max(x))


def test_scalar_result_in_graph_mode_is_a_tensor() -> None:
    x = torch.tensor(BASE)
    quotient, shifted = graph_reuses_a_scalar_result(array(BASE))
    check_same(quotient, x / x.sum())
    check_same(shifted, x + x.max())
    assert isinstance(graph_sum_all(array(BASE)), ms.Tensor)


@ms.jit
def graph_by_full_name(x):
    return bridge.aten.log_sigmoid(x)


def test_operator_by_its_full_name_in_graph_mode() -> None:
    check_same(graph_by_full_name(array(BASE)), torch.ops.aten.log_sigmoid(torch.tensor(BASE)))


@pytest.mark.parametrize(
    "split",
    [lambda x: (x[::2, 1], x[1::2, 2]), lambda x: (x.transpose(2, 1, 0)[0], x[0, :, 0])],
    ids=["slices", "transposed and slice"],
)
def test_several_views_of_one_memory(split: Callable[[Any], Any]) -> None:
    first, second = split(array(BASE))
    a, b = as_torch(first), as_torch(second)
    if a.shape == b.shape:
        check_same(aten.mul(first, second), a * b)
    check_same(aten.cat([aten.flatten(first), aten.flatten(second)]), torch.cat([a.flatten(), b.flatten()]))


def test_view_that_is_written_later_was_read_before() -> None:
    x = array(BASE.copy())
    view = x[1:3]
    result = aten.neg(view)
    x[1:3] = 0
    np.testing.assert_array_equal(result.asnumpy(), -BASE[1:3])
