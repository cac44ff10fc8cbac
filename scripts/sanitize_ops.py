#!/usr/bin/env python3
"""Fifty representative operators, forward and backward, once each, and two of them again with long rows, for which
there are kernels of our own: what scripts/sanitize_gpu.sh runs under NVIDIA's compute-sanitizer. On CPU it runs too,
which says that the list is good.

    python scripts/sanitize_ops.py --device GPU
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np

import bridge
from bridge import aten

RNG = np.random.default_rng(0)


def tensor(*shape: int) -> ms.Tensor:
    return ms.Tensor(RNG.standard_normal(shape).astype(np.float32))


def integers(most: int, *shape: int) -> ms.Tensor:
    return ms.Tensor(RNG.integers(0, most, shape))


X, Y, SQUARE = tensor(33, 17), tensor(33, 17), tensor(12, 12)
IMAGE, KERNEL, VOLUME = tensor(2, 4, 16, 16), tensor(6, 4, 3, 3), tensor(1, 2, 6, 6, 6)
SCALE, SHIFT = tensor(17), tensor(17)
GRID = ms.Tensor(RNG.uniform(-1, 1, (2, 8, 8, 2)).astype(np.float32))
LONG_ROWS = tensor(3, 4096)
ROWS, CLASSES, MASK = integers(33, 20), integers(17, 33), ms.Tensor(RNG.random((33, 17)) > 0.5)

# A function of the tensors after it. It is differentiated with respect to the first, where that has a gradient.
CALLS: list[tuple[str, Callable[..., Any], tuple[ms.Tensor, ...]]] = [
    ("leaky_relu", lambda x: aten.leaky_relu(x, 0.1), (X,)),
    ("add", lambda x, y: aten.add(x, y, alpha=2), (X, Y)),
    ("mul", lambda x, y: aten.mul(x, y), (X, SCALE)),
    ("div", lambda x, y: aten.div(x, y), (X, Y)),
    ("pow", lambda x: aten.pow(x, 3), (X,)),
    ("exp", lambda x: aten.exp(x), (X,)),
    ("tanh", lambda x: aten.tanh(x), (X,)),
    ("gelu", lambda x: aten.gelu(x), (X,)),
    ("silu", lambda x: aten.silu(x), (X,)),
    ("softplus", lambda x: aten.softplus(x), (X,)),
    ("clamp", lambda x: aten.clamp(x, -1.0, 1.0), (X,)),
    ("where", lambda x, m, y: aten.where(m, x, y), (X, MASK, Y)),
    ("lerp", lambda x, y: aten.lerp(x, y, 0.3), (X, Y)),
    ("atan2", lambda x, y: aten.atan2(x, y), (X, Y)),
    ("sum", lambda x: aten.sum(x, [1]), (X,)),
    ("mean", lambda x: aten.mean(x, [0]), (X,)),
    ("var", lambda x: aten.var(x, [1]), (X,)),
    ("amax", lambda x: aten.amax(x, [1]), (X,)),
    ("logsumexp", lambda x: aten.logsumexp(x, [1]), (X,)),
    ("cumsum", lambda x: aten.cumsum(x, 1), (X,)),
    ("cumprod", lambda x: aten.cumprod(x, 1), (X,)),
    ("prod", lambda x: aten.prod(x, 1), (X,)),
    ("softmax", lambda x: aten.softmax(x, -1), (X,)),
    ("softmax, long rows", lambda x: aten.softmax(x, -1), (LONG_ROWS,)),
    ("log_softmax", lambda x: aten.log_softmax(x, -1), (X,)),
    ("layer_norm", lambda x, w, b: aten.layer_norm(x, [17], w, b), (X, SCALE, SHIFT)),
    ("group_norm", lambda x: aten.group_norm(x, 2), (IMAGE,)),
    ("native_batch_norm", lambda x: aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[0], (IMAGE,)),
    ("conv2d", lambda x, w: aten.conv2d(x, w, padding=1), (IMAGE, KERNEL)),
    ("max_pool2d", lambda x: aten.max_pool2d(x, [2, 2]), (IMAGE,)),
    ("avg_pool2d", lambda x: aten.avg_pool2d(x, [2, 2]), (IMAGE,)),
    ("adaptive_avg_pool3d", lambda x: aten.adaptive_avg_pool3d(x, [2, 3, 2]), (VOLUME,)),
    ("upsample_bilinear2d", lambda x: aten.upsample_bilinear2d(x, [24, 20], False), (IMAGE,)),
    ("grid_sampler_2d", lambda x, g: aten.grid_sampler_2d(x, g, 0, 0, False), (IMAGE, GRID)),
    ("reflection_pad2d", lambda x: aten.reflection_pad2d(x, [1, 2, 2, 1]), (IMAGE,)),
    ("im2col", lambda x: aten.im2col(x, [3, 3], [1, 1], [1, 1], [2, 2]), (IMAGE,)),
    ("mm", lambda x, y: aten.mm(x, y), (SQUARE, SQUARE)),
    ("bmm", lambda x, y: aten.bmm(x, y), (tensor(3, 5, 7), tensor(3, 7, 4))),
    ("addmm", lambda x, y, z: aten.addmm(x, y, z), (SQUARE, SQUARE, SQUARE)),
    ("linalg_inv_ex", lambda x: aten.linalg_inv_ex(x)[0], (SQUARE,)),
    ("sort", lambda x: aten.sort(x)[0], (X,)),
    ("sort, long rows", lambda x: aten.sort(x)[0], (LONG_ROWS,)),
    ("topk", lambda x: aten.topk(x, 5)[0], (X,)),
    ("gather", lambda x, i: aten.gather(x, 0, i), (X, integers(33, 10, 17))),
    ("index_select", lambda x, i: aten.index_select(x, 0, i), (X, ROWS)),
    ("scatter_add", lambda x, i, y: aten.scatter_add(x, 0, i, y), (X, integers(33, 10, 17), tensor(10, 17))),
    ("embedding", lambda x, i: aten.embedding(x, i), (X, ROWS)),
    ("cat", lambda x, y: aten.cat([x, y], 1), (X, Y)),
    ("flip", lambda x: aten.flip(x, [0]), (X,)),
    ("cross_entropy_loss", lambda x, y: aten.cross_entropy_loss(x, y), (X, CLASSES)),
    ("mse_loss", lambda x, y: aten.mse_loss(x, y), (X, Y)),
    ("native_dropout", lambda x: aten.native_dropout(x, 0.5, True)[0], (X,)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU")
    ms.set_device(parser.parse_args().device)
    bridge.manual_seed(0)
    for name, call, tensors in CALLS:
        value, gradient = ms.value_and_grad(call)(*tensors)
        if not (np.isfinite(value.asnumpy()).all() and gradient.shape == tensors[0].shape):
            raise RuntimeError(f"{name}: the result or its gradient is wrong")
    print(f"{len(CALLS)} calls ran, forward and backward")


if __name__ == "__main__":
    main()
