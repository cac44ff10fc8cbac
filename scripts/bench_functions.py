"""Measures PyTorch's functions (bridge.torch) and layers (bridge.nn) against the `aten.` calls that they come to.

A function is measured in PyNative mode: in a graph both are the same primitive. A layer is measured in both modes,
against a Cell that makes the `aten.` call with the layer's Parameters. The two take turns; the ratio is that of the
fastest rounds.

Usage:

    python scripts/bench_functions.py                 # at 16x16 and 2048x2048
    python scripts/bench_functions.py --sizes 16
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np

from bridge import aten, nn
from bridge import torch as T
from bridge.torch.nn import functional as F

Pair = tuple[str, Callable[[], Any], Callable[[], Any]]


def pairs(n: int) -> list[Pair]:
    """Functions, and the calls that they come to, on tensors of n x n."""
    draw = np.random.default_rng(0)
    x, y = (ms.Tensor(draw.standard_normal((n, n)).astype(np.float32)) for _ in range(2))
    image = ms.Tensor(draw.standard_normal((1, 1, n, n)).astype(np.float32))
    labels = ms.Tensor(draw.integers(0, n, n))
    bilinear = aten.upsample_bilinear2d.vec
    return [
        ("F.relu", lambda: F.relu(x), lambda: aten.relu(x)),
        ("F.gelu", lambda: F.gelu(x), lambda: aten.gelu(x)),
        ("F.softmax", lambda: F.softmax(x, dim=1), lambda: aten.softmax(x, 1)),
        ("F.layer_norm", lambda: F.layer_norm(x, (n,)), lambda: aten.layer_norm(x, [n])),
        ("F.linear", lambda: F.linear(x, y), lambda: aten.linear(x, y)),
        ("F.mse_loss", lambda: F.mse_loss(x, y), lambda: aten.mse_loss(x, y)),
        ("F.cross_entropy", lambda: F.cross_entropy(x, labels), lambda: aten.cross_entropy_loss(x, labels)),
        (
            "F.interpolate",
            lambda: F.interpolate(image, scale_factor=2, mode="bilinear"),
            lambda: bilinear(image, None, False, [2.0, 2.0]),
        ),
        ("T.add", lambda: T.add(x, y, alpha=2), lambda: aten.add(x, y, alpha=2)),
        ("T.einsum", lambda: T.einsum("ab,cb->ac", x, y), lambda: aten.einsum("ab,cb->ac", [x, y])),
        ("T.linalg.norm", lambda: T.linalg.norm(x), lambda: aten.linalg_norm(x)),
    ]


class Calling(ms.nn.Cell):
    """Calls a function with a tensor and the Parameters of a layer."""

    def __init__(self, function: Callable[..., Any], layer: ms.nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.function = function
        self.own = ms.ParameterTuple(layer.get_parameters())

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.function(x, *self.own)


def softmax(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore, like those below
    return aten.softmax(x, 1)


def layer_norm(x, weight, bias):  # type: ignore[no-untyped-def]
    return aten.layer_norm(x, x.shape[-1:], weight, bias)


def conv2d(x, weight, bias):  # type: ignore[no-untyped-def]
    return aten.conv2d(x, weight, bias, padding=1)


def layers(n: int, mode: str) -> list[Pair]:
    """Layers, and Cells that make the calls that they come to, on tensors of n x n."""
    draw = np.random.default_rng(0)
    x, image = (ms.Tensor(draw.standard_normal(shape).astype(np.float32)) for shape in ((n, n), (1, 1, n, n)))

    def pair(layer: Any, function: Callable[..., Any], given: ms.Tensor) -> Pair:
        cell = Calling(function, layer)
        return f"{type(layer).__name__}, {mode}", lambda: layer(given), lambda: cell(given)

    return [
        pair(nn.ReLU(), aten.relu, x),
        pair(nn.Softmax(1), softmax, x),
        pair(nn.LayerNorm(n), layer_norm, x),
        pair(nn.Linear(n, n), aten.linear, x),
        pair(nn.Conv2d(1, 1, 3, padding=1), conv2d, image),
    ]


def seconds(call: Callable[[], Any], calls: int) -> float:
    """The time of one call among several, until the last is computed."""
    begin = time.perf_counter()
    for _ in range(calls):
        result = call()
    result.asnumpy()
    return (time.perf_counter() - begin) / calls


def measure(found: list[Pair], calls: int, rounds: int) -> None:
    for name, function, call in found:
        seconds(function, 2), seconds(call, 2)
        times = [(seconds(function, calls), seconds(call, calls)) for _ in range(rounds)]
        own, theirs = (min(way) * 1e6 for way in zip(*times, strict=True))
        print(f"  {name:20} {own:10.1f} us   aten {theirs:10.1f} us   {own / theirs:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="16,2048")
    for n in map(int, parser.parse_args().sizes.split(",")):
        how_often = (200, 25) if n < 256 else (2, 7)
        print(f"{n} x {n}")
        measure(pairs(n), *how_often)
        measure(layers(n, "PyNative"), *how_often)
        ms.set_context(mode=ms.GRAPH_MODE)
        measure(layers(n, "graph"), *how_often)
        ms.set_context(mode=ms.PYNATIVE_MODE)


if __name__ == "__main__":
    main()
