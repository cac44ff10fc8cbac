"""Operators as the bridge, MindSpore and PyTorch have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from mindspore import ops

from bridge import aten


@dataclass(frozen=True)
class Case:
    """One operator in each framework; `weights` are what it takes besides its input."""

    name: str
    bridge: Callable[..., Any]
    torch: Callable[..., Any]
    mindspore: Callable[..., Any] | None
    weights: Callable[[int], tuple[np.ndarray, ...]] = lambda n: ()
    shape: Callable[[int], tuple[int, ...]] = lambda n: (n, n)


def _layer_norm_weights(n: int) -> tuple[np.ndarray, ...]:
    return np.ones(n, np.float32), np.zeros(n, np.float32)


def _conv2d_weights(n: int) -> tuple[np.ndarray, ...]:
    return (np.full((16, 16, 3, 3), 1 / 144, np.float32),)


def _matmul_weights(n: int) -> tuple[np.ndarray, ...]:
    return (np.full((n, n), 1 / n, np.float32),)


def _image(n: int) -> tuple[int, ...]:
    return (1, 16, n // 4, n // 4)


# ops.layer_norm has no CPU kernel; nn.LayerNorm uses this primitive.
_MINDSPORE_LAYER_NORM = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=1e-5)


# Graph mode compiles these from their source: each is a function of its own, with nothing but the call in it.


def bridge_leaky_relu(x: Any) -> Any:
    return aten.leaky_relu(x, 0.01)


def bridge_add(x: Any) -> Any:
    return aten.add(x, x)


def bridge_softmax(x: Any) -> Any:
    return aten.softmax(x, -1)


def bridge_layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return aten.layer_norm(x, weight.shape, weight, bias)


def bridge_conv2d(x: Any, weight: Any) -> Any:
    return aten.conv2d(x, weight, padding=1)


def bridge_matmul(x: Any, weight: Any) -> Any:
    return aten.matmul(x, weight)


def bridge_sort(x: Any) -> Any:
    return aten.sort(x)[0]


def mindspore_add(x: Any) -> Any:
    return ops.add(x, x)


def mindspore_softmax(x: Any) -> Any:
    return ops.softmax(x, -1)


def mindspore_layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return _MINDSPORE_LAYER_NORM(x, weight, bias)[0]


def mindspore_conv2d(x: Any, weight: Any) -> Any:
    return ops.conv2d(x, weight, pad_mode="pad", padding=1)


def mindspore_sort(x: Any) -> Any:
    return ops.sort(x)[0]


CASES = (
    # MindSpore's LeakyReLU on CPU is a composite of a millisecond; relu is its nearest kernel.
    Case("leaky_relu", bridge_leaky_relu, partial(torch.nn.functional.leaky_relu, negative_slope=0.01), ops.relu),
    Case("add", bridge_add, lambda x: torch.add(x, x), mindspore_add),
    Case("softmax", bridge_softmax, lambda x: torch.softmax(x, -1), mindspore_softmax),
    Case(
        "layer_norm",
        bridge_layer_norm,
        lambda x, w, b: torch.layer_norm(x, w.shape, w, b),
        mindspore_layer_norm,
        _layer_norm_weights,
    ),
    Case(
        "conv2d", bridge_conv2d, lambda x, w: torch.conv2d(x, w, padding=1), mindspore_conv2d, _conv2d_weights, _image
    ),
    Case("matmul", bridge_matmul, torch.matmul, ops.matmul, _matmul_weights),
    Case("sort", bridge_sort, lambda x: torch.sort(x)[0], mindspore_sort),
)
