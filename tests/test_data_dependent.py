"""Calls whose results have shapes that depend on the data, and calls of the same operators where they do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

from bridge import aten, coverage
from bridge.op.overload import overload
from conformance.compare import flatten
from shared import data


def integers(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


ROWS = integers([2, 0, 1], [1, 1, 3])
SPECTRUM = (data(5, 7) + 1j * data(5, 7, seed=1)).astype(np.complex64)
WINDOW = np.hanning(10)[1:-1].astype(np.float32)
WEIGHTS = [data(*shape, seed=i) for i, shape in enumerate([(16, 3), (16, 4), (16,), (16,)])]


def flat_in_graph(results):
    return results if isinstance(results, (list, tuple)) else (results,)


def compare(found: Any, expected: Any, tolerance: float = 0) -> None:
    found, expected = flatten(found), flatten(expected)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert str(one.dtype).lower() == str(other.dtype).removeprefix("torch.")
        assert one.shape == tuple(other.shape)
        np.testing.assert_allclose(one.asnumpy(), other.numpy(), rtol=tolerance)


def index(op, x, i):
    return op.index.Tensor(x, [i])


def index_of_two(op, x, i, j):
    return op.index.Tensor(x, [i, None, j])


def one_hot(op, i):
    return op.one_hot(i, 5)


def repeats(op, n):
    return op.repeat_interleave.Tensor(n, output_size=6)


def repeat_interleave(op, x, n):
    return op.repeat_interleave.self_Tensor(x, n, 0, output_size=6)


def istft(op, x, window):
    return op.istft(x, 8, None, None, window)


def istft_without_window(op, x):
    return op.istft(x, 8)


def cov(op, x):
    return op.cov(x)


def weighted_cov(op, x, w):
    return op.cov(x, fweights=w)


def narrow(op, x, start):
    return op.narrow.Tensor(x, 1, start, 2)


def ctc_loss(op, x, targets):
    return op._ctc_loss(x, targets, [5, 5], [3, 3], 0, False)


def lstsq(op, x, y):
    return op.linalg_lstsq(x, y)


def lstsq_of_full_rank(op, x, y):
    return op.linalg_lstsq(x, y, driver="gels")


def lstsq_with_singular_values(op, x, y):
    return op.linalg_lstsq(op.t(x), op.narrow(y, 0, 0, 3), driver="gelsd")


def lstsq_with_residuals(op, x, y):
    return op.linalg_lstsq(x, y, driver="gelsd")


def lstm(op, x, sizes, h, c, w0, w1, w2, w3):
    return op.lstm.data(x, sizes, [h, c], [w0, w1, w2, w3], True, 1, 0.0, False, False)


def gru(op, x, sizes, h, w0, w1, w2, w3):
    return op.gru.data(x, sizes, h, [w0, w1, w2, w3], True, 1, 0.0, False, False)


def pack_backward(op, x, sizes):
    return op._pack_padded_sequence_backward(x, [3, 3, 3], sizes, False)


def addcdiv(op, x, y, scalars):
    return op._foreach_addcdiv.Tensor([x, y], [y, x], [x, y], scalars)


def adamw(op, x, g, m, v, step):
    return op._fused_adamw(
        [x], [g], [m], [v], [], [step], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False,
        maximize=False,
    )  # fmt: skip


def amsgrad(op, x, g, m, v, step):
    return op._fused_adam(
        [x, g], [g, x], [m, m], [v, v], [v, v], [step, step], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8,
        amsgrad=True, maximize=False,
    )  # fmt: skip


def sobol(op, quasi, state):
    return op._sobol_engine_draw(quasi, 5, state, 3, 0, None)


def lstm_cell_backward_without_bias(op, x, gates, h):
    return op._thnn_differentiable_lstm_cell_backward(x, h, gates, gates, None, None, h, x)[:3]


def gru_cell_backward(op, x, gates, more, h, bias):
    return op._thnn_differentiable_gru_cell_backward(x, gates, more, h, bias, bias)


def gru_cell_backward_without_bias(op, x, gates, more, h):
    return op._thnn_differentiable_gru_cell_backward(x, gates, more, h, None, None)[:3]


LSTM = (data(6, 3), integers(3, 2, 1), data(1, 3, 4, seed=1), data(1, 3, 4, seed=2), *WEIGHTS)
GRU = (*LSTM[:3], *(w[:12] for w in WEIGHTS))
ADAM = (*(data(3, 4, seed=i) for i in range(3)), abs(data(3, 4)), np.array(2, np.float32))
CELL = (data(2, 3), data(2, 9, seed=1), data(2, 9, seed=2), data(2, 3, seed=3))

KNOWN: list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = [
    (index, (data(4, 5), ROWS)),
    (index, (data(4, 5), ROWS.astype(np.int32))),
    (index_of_two, (data(4, 5, 3), ROWS, integers(0))),
    (one_hot, (integers(4, 0, 2),)),
    (repeats, (integers(1, 3, 2),)),
    (repeat_interleave, (data(3, 2), integers(1, 3, 2))),
    (istft, (SPECTRUM, WINDOW)),
    (istft_without_window, (SPECTRUM,)),
    (cov, (data(3, 5),)),
    (weighted_cov, (data(3, 4), integers(1, 2, 1, 3))),
    (narrow, (data(3, 5), np.array(2))),
    (ctc_loss, (data(5, 2, 4), integers([1, 2, 3], [2, 1, 3]))),
    (lstm, LSTM),
    (gru, GRU),
    (pack_backward, (data(6, 3), integers(3, 2, 1))),
    (addcdiv, (data(3), data(3, seed=1), data(2))),
    (adamw, ADAM),
    (amsgrad, ADAM),
    (sobol, (integers(0, 0, 0), integers(*range(90)).reshape(3, 30))),
    (gru_cell_backward, (*CELL, data(9))),
    (gru_cell_backward_without_bias, CELL),
    (lstm_cell_backward_without_bias, (data(3, 2), data(3, 8), data(3, 2, seed=1))),
]
# PyTorch's bits for these follow from where in memory their matrices are.
NOT_REPEATED = [lstsq, lstsq_of_full_rank, lstsq_with_singular_values, lstsq_with_residuals]


def check(function: Callable[..., Any], inputs: Sequence[np.ndarray], run: Callable[..., Any], **how: Any) -> None:
    def call(*tensors):
        return function(aten, *tensors)

    expected = function(torch.ops.aten, *map(torch.from_numpy, map(np.array, inputs)))
    compare(run(call)(*map(ms.Tensor, inputs)), expected, **how)


def check_gradients(function: Callable[..., Any], inputs: Sequence[np.ndarray], run: Callable[..., Any]) -> None:
    """Of the sum of all floating results after a function that makes the gradient depend on them."""
    differentiable = tuple(i for i, x in enumerate(inputs) if x.dtype == np.float32)

    def loss(*tensors):
        total = 0.0
        for result in flat_in_graph(function(aten, *tensors)):
            total = aten.add(total, aten.sum(aten.sin(result)))
        return total

    leaves = [torch.from_numpy(np.array(x)).requires_grad_(i in differentiable) for i, x in enumerate(inputs)]
    total = torch.zeros(())
    for result in flatten(function(torch.ops.aten, *leaves)):
        total = torch.ops.aten.add(total, torch.ops.aten.sum(torch.ops.aten.sin(result)))
    expected = torch.autograd.grad(total, [leaves[i] for i in differentiable])
    compare(run(ms.grad(loss, differentiable))(*map(ms.Tensor, inputs)), expected)


@pytest.mark.parametrize(("function", "inputs"), [pytest.param(*row, id=row[0].__name__) for row in KNOWN])
def test_shapes_that_the_arguments_fix(
    function: Callable[..., Any], inputs: tuple[np.ndarray, ...], mode: Callable[..., Any]
) -> None:
    check(function, inputs, mode)


@pytest.mark.parametrize("function", NOT_REPEATED)
def test_least_squares(function: Callable[..., Any], mode: Callable[..., Any]) -> None:
    check(function, (data(5, 3), data(5, 2, seed=1)), mode, tolerance=1e-5)


def test_results_that_are_left_out_are_none() -> None:
    grad, gates, more, h = map(ms.Tensor, CELL)
    results = aten._thnn_differentiable_gru_cell_backward(grad, gates, more, h, None, None)
    assert [result is None for result in results] == [False, False, False, True, True]


def masked_select(op, x, mask):
    return op.masked_select(x, mask)


def masked_index(op, x, mask):
    return op.index.Tensor(x, [None, mask])


def masked_and_integer_index(op, x, mask, i):
    return op.index.Tensor(x, [mask, i])


def nonzero(op, x):
    return op.nonzero(x)


def where(op, x):
    return op.where(x)


def argwhere(op, x):
    return op.argwhere(x)


def unique(op, x):
    return op._unique2(x, True, True, True)


def unique_consecutive(op, x):
    return op.unique_consecutive(x, True, True)


def unique_dim(op, x):
    return op.unique_dim(x, 0)


def bincount(op, x):
    return op.bincount(x)


def one_hot_of_all(op, x):
    return op.one_hot(x)


def repeated(op, x, n):
    return op.repeat_interleave.self_Tensor(x, n, 0)


def split(op, x, places):
    return op.tensor_split.tensor_indices_or_sections(x, places)


def pack(op, x, lengths):
    return op._pack_padded_sequence(x, lengths, False)


def pad(op, x, sizes):
    return op._pad_packed_sequence(x, sizes, False, 0.5, 0)


def reshaped(op, x, shape):
    return op._reshape_from_tensor(x, shape)


def chained(op, x, mask):
    found = op.masked_select(op.mul(x, 2.0), mask)
    return found, op.cat([found, op.sort(found)[0]]), op.sum(found), op.outer(found, found)


def of_each_other(op, x, mask):
    kept = op.index.Tensor(x, [mask])
    rows = op.nonzero(op.gt(op.sum(kept, [1]), 0.0))
    return op.index.Tensor(kept, [op.squeeze(rows, 1)])


X = data(4, 5)
DEPENDENT: list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = [
    (masked_select, (X, X > 0)),
    (masked_select, (X, X > 9)),
    (masked_select, (X, X[:1] > 0)),
    (masked_index, (X, X[0] > 0)),
    (masked_index, (X, (X[0] > 0).astype(np.uint8))),
    (masked_and_integer_index, (X, np.array([True, False, True, True]), integers(4, 0, 4))),
    (nonzero, (np.maximum(X, 0),)),
    (where, (X > 0,)),
    (argwhere, (np.maximum(X, 0),)),
    (unique, (integers([3, 1, 3], [0, 1, 7]),)),
    (unique_consecutive, (integers(3, 3, 1, 3),)),
    (unique_dim, (integers([3, 1], [0, 1], [3, 1]),)),
    (bincount, (integers(3, 1, 3, 6),)),
    (one_hot_of_all, (integers(3, 1, 3, 6),)),
    (repeated, (X, integers(3, 0, 1, 6))),
    (split, (X, integers(1, 3))),
    (pack, (data(4, 3, 2), integers(4, 3, 1))),
    (pad, (data(6, 2), integers(3, 2, 1))),
    (reshaped, (X, integers(2, 10))),
    (chained, (X, X > 0)),
    (of_each_other, (X, X[:, 0] > 0)),
]


@pytest.mark.parametrize(("function", "inputs"), [pytest.param(*row, id=row[0].__name__) for row in DEPENDENT])
def test_shapes_that_the_data_decides(
    function: Callable[..., Any], inputs: tuple[np.ndarray, ...], mode: Callable[..., Any]
) -> None:
    check(function, inputs, mode)


DIFFERENTIATED: list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = [
    (index, (X, ROWS)),
    (repeat_interleave, (data(3, 2), integers(1, 3, 2))),
    (cov, (X,)),
    (gru, GRU),
    (masked_select, (X, X > 0)),
    (masked_select, (X, X > 9)),
    (masked_index, (X, X[0] > 0)),
    (repeated, (X, integers(3, 0, 1, 6))),
    (of_each_other, (X, X[:, 0] > 0)),
]


@pytest.mark.parametrize(("function", "inputs"), [pytest.param(*row, id=row[0].__name__) for row in DIFFERENTIATED])
def test_gradients(function: Callable[..., Any], inputs: tuple[np.ndarray, ...], mode: Callable[..., Any]) -> None:
    check_gradients(function, inputs, mode)


def test_graph_mode_refuses_no_operator_whose_results_are_tensors() -> None:
    rows = coverage.report()["overloads"]
    refused = {name: row["graph_reason"] for name, row in rows.items() if row.get("graph_reason")}
    assert {name: why for name, why in refused.items() if overload(name).schema.gives_tensors} == {}
    assert set(refused.values()) == {
        "it has no result",
        "its result is not a tensor",
        "not all of its results are tensors",
    }


def graph_of_a_net(x, weight):
    kept = aten.index.Tensor(x, [aten.gt(aten.sum(x, [1]), 0.0)])
    if kept.shape[0] > 2:
        kept = aten.mul(kept, 2.0)
    return aten.sum(aten.mm(kept, weight))


def test_shapes_that_the_data_decides_differ_from_step_to_step() -> None:
    step = ms.jit(ms.value_and_grad(graph_of_a_net, 1))
    for seed in range(6):
        x, weight = data(5, 3, seed=seed), data(3, 2)
        kept = x[torch.from_numpy(x).sum(1).numpy() > 0]
        leaf = torch.from_numpy(weight).requires_grad_()
        expected = torch.sum(torch.from_numpy(kept * (2 if len(kept) > 2 else 1)) @ leaf)
        expected.backward()
        compare(step(ms.Tensor(x), ms.Tensor(weight)), (expected.detach(), leaf.grad))


def graph_of_a_bad_count(x):
    return aten.bincount(x)


def test_errors_of_a_graph_come_when_it_runs() -> None:
    with pytest.raises(RuntimeError, match=r"aten\.bincount: bincount only supports 1-d non-negative"):
        ms.jit(graph_of_a_bad_count)(ms.Tensor([-1, 2], ms.int64)).asnumpy()
    compare(ms.jit(graph_of_a_bad_count)(ms.Tensor([1, 2], ms.int64)), torch.tensor([0, 1, 1]))


def graph_of_unknown_sizes(x):
    return aten.nonzero(x), aten.repeat_interleave(x, aten.full([3], 2, dtype=ms.int64), 0)


def test_unknown_dimensions() -> None:
    run = ms.jit(graph_of_unknown_sizes, dynamic=1)
    for columns in (4, 7, 2):
        x = data(3, columns)
        expected = torch.nonzero(torch.from_numpy(x)), torch.from_numpy(np.repeat(x, 2, 0))
        compare(run(ms.Tensor(x)), expected)


def test_a_rule_of_pynative_mode_looks_at_each_call() -> None:
    x = ms.Tensor(X)
    for index in (integers(1, 2), X[:, 0] > 0, integers(0), X[:, 1] > 0):
        compare(aten.index(x, [ms.Tensor(index)]), torch.from_numpy(X)[torch.from_numpy(index)])
