"""PyTorch's CPU kernels on MindSpore's GPU device: asked for, or because there is no CUDA kernel.

Usage:

    pytest tests/test_cpu_op_in_gpu_device.py --device GPU
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import ops

from bridge import aten
from bridge.op.overload import overload

pytestmark = pytest.mark.gpu

A = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((6, 5)).astype(np.float32)
IMAGE = np.random.default_rng(2).standard_normal((1, 2, 6, 6)).astype(np.float32)
KERNEL = np.random.default_rng(3).standard_normal((3, 2, 3, 3)).astype(np.float32)
Call = Callable[..., Any]

# MindSpore's compiler reads the source of a function, so each call is one.


def leaky_relu(x: ms.Tensor) -> ms.Tensor:
    return aten.leaky_relu.on_cpu(x, 0.1)


def add(x: ms.Tensor) -> ms.Tensor:
    return aten.add.Tensor.on_cpu(x, x, alpha=2)


def matmul(x: ms.Tensor, y: ms.Tensor) -> ms.Tensor:
    return aten.matmul.on_cpu(x, y)


def softmax(x: ms.Tensor) -> ms.Tensor:
    return aten.softmax.on_cpu(x, -1)


def logsumexp(x: ms.Tensor) -> ms.Tensor:
    return aten.logsumexp.on_cpu(x, [0])


def gelu(x: ms.Tensor) -> ms.Tensor:
    return aten.gelu.on_cpu(x)


def sort(x: ms.Tensor) -> ms.Tensor:
    return aten.sort.on_cpu(x)[0]


def topk(x: ms.Tensor) -> ms.Tensor:
    return aten.topk.on_cpu(x, 2)[0]


def cumsum(x: ms.Tensor) -> ms.Tensor:
    return aten.cumsum.on_cpu(x, 1)


def layer_norm(x: ms.Tensor) -> ms.Tensor:
    return aten.layer_norm.on_cpu(x, [6])


def conv2d(x: ms.Tensor, w: ms.Tensor) -> ms.Tensor:
    return aten.conv2d.on_cpu(x, w)


def max_pool2d(x: ms.Tensor) -> ms.Tensor:
    return aten.max_pool2d.on_cpu(x, [2, 2])


def avg_pool2d(x: ms.Tensor) -> ms.Tensor:
    return aten.avg_pool2d.on_cpu(x, [2, 2])


def cat(x: ms.Tensor) -> ms.Tensor:
    return aten.cat.on_cpu([x, x], 1)


def cdist(x: ms.Tensor) -> ms.Tensor:
    return aten.cdist.on_cpu(x, x * 2)


def linalg_svdvals(x: ms.Tensor) -> ms.Tensor:
    return aten.linalg_svdvals.on_cpu(x)


def pixel_shuffle(x: ms.Tensor) -> ms.Tensor:
    return aten.pixel_shuffle.on_cpu(x, 1)


def flip(x: ms.Tensor) -> ms.Tensor:
    return aten.flip.on_cpu(x, [0])


def tril(x: ms.Tensor) -> ms.Tensor:
    return aten.tril.on_cpu(x)


def erfinv(x: ms.Tensor) -> ms.Tensor:
    return aten.erfinv.on_cpu(aten.tanh.on_cpu(x))


# The operator asked for on CPU, what PyTorch computes there, and of what.
ASKED: list[tuple[Call, Call, tuple[np.ndarray, ...]]] = [
    (leaky_relu, lambda x: torch.ops.aten.leaky_relu(x, 0.1), (A,)),
    (add, lambda x: torch.add(x, x, alpha=2), (A,)),
    (matmul, lambda x, y: torch.matmul(x, y), (A, B)),
    (softmax, lambda x: torch.softmax(x, -1), (A,)),
    (logsumexp, lambda x: torch.logsumexp(x, [0]), (A,)),
    (gelu, lambda x: torch.ops.aten.gelu(x), (A,)),
    (sort, lambda x: torch.sort(x)[0], (A,)),
    (topk, lambda x: torch.topk(x, 2)[0], (A,)),
    (cumsum, lambda x: torch.cumsum(x, 1), (A,)),
    (layer_norm, lambda x: torch.layer_norm(x, [6]), (A,)),
    (conv2d, lambda x, w: torch.conv2d(x, w), (IMAGE, KERNEL)),
    (max_pool2d, lambda x: torch.max_pool2d(x, 2), (IMAGE,)),
    (avg_pool2d, lambda x: torch.ops.aten.avg_pool2d(x, [2, 2]), (IMAGE,)),
    (cat, lambda x: torch.cat([x, x], 1), (A,)),
    (cdist, lambda x: torch.cdist(x, x * 2), (A,)),
    (linalg_svdvals, lambda x: torch.linalg.svdvals(x), (A,)),
    (pixel_shuffle, lambda x: torch.pixel_shuffle(x, 1), (IMAGE,)),
    (flip, lambda x: torch.flip(x, [0]), (A,)),
    (tril, lambda x: torch.tril(x), (A,)),
    (erfinv, lambda x: torch.erfinv(torch.tanh(x)), (A,)),
]
NAMES = [ours.__name__ for ours, _, _ in ASKED]


def in_mode(mode: str, function: Call) -> Call:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    return ms.jit(function) if mode == "graph" else function


@pytest.mark.parametrize("mode", ["pynative", "graph"])
@pytest.mark.parametrize(("ours", "theirs", "arrays"), ASKED, ids=NAMES)
def test_asked_for(ours: Call, theirs: Call, arrays: tuple[np.ndarray, ...], mode: str) -> None:
    results = in_mode(mode, ours)(*map(ms.Tensor, arrays))
    expected = theirs(*map(torch.from_numpy, arrays))
    np.testing.assert_array_equal(results.asnumpy(), expected.numpy())


@pytest.mark.parametrize("mode", ["pynative", "graph"])
@pytest.mark.parametrize(("ours", "theirs", "arrays"), ASKED, ids=NAMES)
def test_gradients(ours: Call, theirs: Call, arrays: tuple[np.ndarray, ...], mode: str) -> None:
    gradients = in_mode(mode, ms.grad(ours, tuple(range(len(arrays)))))(*map(ms.Tensor, arrays))
    inputs = [torch.from_numpy(array).requires_grad_() for array in arrays]
    result = theirs(*inputs)
    expected = torch.autograd.grad(result, inputs, torch.ones_like(result))
    for gradient, wanted in zip(gradients if len(arrays) > 1 else [gradients], expected, strict=True):
        np.testing.assert_array_equal(gradient.asnumpy(), wanted.numpy())


def chosen(x: ms.Tensor) -> ms.Tensor:
    """CUDA operators, one that PyTorch has for CPU alone, and MindSpore's own."""
    y = aten.leaky_relu(x, 0.25)
    y = aten._add_relu.Tensor(y, y)
    y = ops.relu(y) + 1.0
    return aten.mul(aten.flip.on_cpu(y, [0]), 3.0)


@pytest.mark.parametrize("mode", ["pynative", "graph"])
def test_mixed_with_cuda_and_mindspore_operators(mode: str) -> None:
    assert overload("_add_relu.Tensor").devices == ("CPU",)
    y = np.where(A > 0, A, A * np.float32(0.25))
    y = np.maximum(y + y, 0) + np.float32(1)
    np.testing.assert_array_equal(in_mode(mode, chosen)(ms.Tensor(A)).asnumpy(), y[::-1] * np.float32(3))


def test_an_operator_for_cuda_alone_says_so() -> None:
    with pytest.raises(RuntimeError, match="cudnn_convolution: it has a CUDA kernel alone, and its CPU"):
        aten.cudnn_convolution.on_cpu(  # type: ignore[attr-defined]  # in the stubs of a build with CUDA
            ms.Tensor(IMAGE), ms.Tensor(KERNEL), [0, 0], [1, 1], [1, 1], 1, False, False, False
        )
