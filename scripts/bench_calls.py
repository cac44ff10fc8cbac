#!/usr/bin/env python3
"""What a call costs: the bridge, MindSpore's own operator, the way by hand through NumPy, and PyTorch, in one run.

Every figure is the time of one operator in a chain, so that a chain's fixed costs (waiting for the result, entering a
graph) hardly count. Two kinds of chain:

    alone   x = op(x), again and again
    mixed   x = op(mindspore_abs(x)), again and again: what a ported network does. Per pair of operators.

With --backward, the time that differentiating a chain (alone) takes: with respect to its input and weights, for a
given gradient of its result. Here each link has weights of its own, as the layers of a network do, so that no gradients
are summed. MindSpore runs forward and backward in one call, so what is shown, for PyTorch too, is the time of both less
that of the forward chain.

The ways take turns of 50 ms, so that threads which sleep in between are awake for most of it. Each row of the table
shows the medians of turns, as soon as they are measured.

    python scripts/bench_calls.py                 # all, about ten minutes on two cores
    python scripts/bench_calls.py --backward      # about five
    python scripts/bench_calls.py --quick --json calls.json
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import mint, nn, ops

from bridge import aten

SIZES = (16, 128, 512, 2048)
WAYS = ("bridge", "mindspore", "by hand", "torch")
BACKWARD_CASES = ("leaky_relu", "softmax", "layer_norm", "conv2d", "matmul")
CHAIN = 100
TURN_S = 0.05  # a chain is shortened until it takes about this long, or run again until it has
TURN_RUNS = 4  # at least: the first wakes threads and fills caches
SLOW_S = 0.5  # a chain that takes longer runs once: MindSpore's conv2d takes seconds
REPEATS = 5
QUICK_REPEATS = SLOW_REPEATS = 3


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
    Case("leaky_relu", bridge_leaky_relu, functools.partial(torch.nn.functional.leaky_relu, negative_slope=0.01),
         ops.relu),
    Case("add", bridge_add, lambda x: torch.add(x, x), mindspore_add),
    Case("softmax", bridge_softmax, lambda x: torch.softmax(x, -1), mindspore_softmax),
    Case("layer_norm", bridge_layer_norm, lambda x, w, b: torch.layer_norm(x, w.shape, w, b), mindspore_layer_norm,
         _layer_norm_weights),
    Case("conv2d", bridge_conv2d, lambda x, w: torch.conv2d(x, w, padding=1), mindspore_conv2d, _conv2d_weights,
         _image),
    Case("matmul", bridge_matmul, torch.matmul, ops.matmul, _matmul_weights),
    Case("sort", bridge_sort, lambda x: torch.sort(x)[0], mindspore_sort),
)  # fmt: skip


@dataclass
class Row:
    """Microseconds for one operator, or for a pair in a mixed chain, by way; a way that does not exist is missing."""

    op: str
    chain: str
    mode: str
    size: int
    microseconds: dict[str, float]

    def ratio(self, way: str) -> float | None:
        return self.microseconds["bridge"] / self.microseconds[way] if way in self.microseconds else None


def links(weights: Sequence[Any], each: int, length: int) -> list[Sequence[Any]]:
    """The weights of each link, which takes so many: its own out of the chain's, or the same for all."""
    return [weights[i * each % len(weights) :][:each] if each else () for i in range(length)]


class Chain(nn.Cell):
    """`length` times the operator, each with `each` weights, and after MindSpore's abs where the chain is mixed."""

    def __init__(self, op: Callable[..., Any], each: int, mixed: bool, length: int) -> None:
        super().__init__()
        self.op = op
        self.each = each
        self.mixed = mixed
        self.length = length

    def construct(self, x: Any, *weights: Any) -> Any:
        for own in links(weights, self.each, self.length):
            if self.mixed:
                x = mint.abs(x)
            x = self.op(x, *own)
        return x


def by_hand(op: Callable[..., Any], device: str) -> Callable[..., ms.Tensor]:
    """The operator on PyTorch tensors as one on MindSpore tensors, through NumPy; on CPU without a copy of the data."""

    def call(*tensors: ms.Tensor) -> ms.Tensor:
        return ms.Tensor.from_numpy(op(*(torch.from_numpy(t.asnumpy()).to(device) for t in tensors)).cpu().numpy())

    return call


def torch_chain(op: Callable[..., Any], each: int, mixed: bool, length: int) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for own in links(weights, each, length):
            x = op(torch.abs(x) if mixed else x, *own)
        return x

    return run


class Bench:
    """Makes the chains of one case and times them."""

    own_weights = False  # whether each link has its own

    def __init__(self, case: Case, size: int, mode: str, mixed: bool, device: str) -> None:
        self.case = case
        self.mode = mode
        self.mixed = mixed
        self.x = np.random.default_rng(0).standard_normal(case.shape(size), np.float32)
        self.weights = case.weights(size)
        self.torch_device = "cuda" if device == "GPU" else "cpu"

    def torch_inputs(self, length: int) -> list[torch.Tensor]:
        """What PyTorch's chain takes."""
        return [torch.from_numpy(a.copy()).to(self.torch_device) for a in self.arrays(length)]

    def inputs(self, length: int) -> list[ms.Tensor]:
        """What the other chains take: on the device, once and for all."""
        return [aten.clone(ms.Tensor(a)) for a in self.arrays(length)]

    def arrays(self, length: int) -> tuple[np.ndarray, ...]:
        return (self.x, *self.weights * (length if self.own_weights else 1))

    def operator(self, way: str) -> Callable[..., Any] | None:
        """The operator to chain, or None where this way does not exist."""
        if way == "by hand":
            return by_hand(self.case.torch, self.torch_device) if self.mode == "pynative" else None
        return {"bridge": self.case.bridge, "mindspore": self.case.mindspore, "torch": self.case.torch}[way]

    def chain(self, way: str, length: int) -> Callable[[], None] | None:
        """A function that runs the chain to its end, once warmed up; None where this way does not exist."""
        op = self.operator(way)
        if op is None:
            return None
        if way == "torch":
            run, tensors = torch_chain(op, len(self.weights), self.mixed, length), self.torch_inputs(length)

            def run_torch() -> None:
                run(*tensors)
                if self.torch_device == "cuda":
                    torch.cuda.synchronize()

            finish = run_torch
        else:
            cell, inputs = Chain(op, len(self.weights), self.mixed, length), self.inputs(length)

            def run_mindspore() -> None:
                result = cell(*inputs)
                if self.torch_device == "cuda":
                    ms.runtime.synchronize()
                else:
                    result.asnumpy()  # waits, and copies nothing; MindSpore's synchronize is not for CPU

            finish = run_mindspore
        try:
            finish()
        except RuntimeError:
            if way != "mindspore":
                raise
            return None  # MindSpore has no kernel for it on this device
        return finish

    def measure(self, repeats: int) -> dict[str, float]:
        """The median microseconds for one link of the chain, by way; the ways take turns."""
        one = self.chain("torch", 1)
        assert one is not None
        link = min(_seconds(one) for _ in range(3))
        length = max(1, min(CHAIN, int(TURN_S / link)))
        if link > TURN_S:
            repeats = min(repeats, SLOW_REPEATS)
        chains = {way: chain for way in WAYS if (chain := self.chain(way, length))}
        seconds: dict[str, list[float]] = {way: [] for way in chains}
        for _ in range(repeats):
            for way, chain in chains.items():
                if not seconds[way] or seconds[way][0] < SLOW_S:
                    seconds[way].append(_turn(chain))
        return {way: statistics.median(times) / length * 1e6 for way, times in seconds.items()}


class BackwardBench(Bench):
    """The same for differentiating the chains."""

    own_weights = True

    def operator(self, way: str) -> Callable[..., Any] | None:
        return None if way == "by hand" else super().operator(way)

    def gradient(self, way: str, length: int) -> Callable[[], None] | None:
        """A function that runs the chain and differentiates it; None where this way does not exist."""
        op = self.operator(way)
        if op is None:
            return None
        if way == "torch":
            run = torch_chain(op, len(self.weights), self.mixed, length)
            leaves = [t.requires_grad_() for t in self.torch_inputs(length)]
            cotangent = torch.ones_like(leaves[0])

            def run_torch() -> None:
                torch.autograd.grad(run(*leaves), leaves, cotangent)
                if self.torch_device == "cuda":
                    torch.cuda.synchronize()

            return run_torch
        cell, inputs = Chain(op, len(self.weights), self.mixed, length), self.inputs(length)
        differentiated = ops.GradOperation(get_all=True, sens_param=True)(cell)
        ones = ops.ones_like(inputs[0])

        def run_mindspore() -> None:
            gradients = differentiated(*inputs, ones)
            if self.torch_device == "cuda":
                ms.runtime.synchronize()
            else:
                for gradient in gradients:
                    gradient.asnumpy()

        try:
            run_mindspore()
        except RuntimeError:
            if way != "mindspore":
                raise
            return None
        return run_mindspore

    def measure(self, repeats: int) -> dict[str, float]:
        """The median microseconds of differentiating one link, by way; the ways take turns."""
        one = self.gradient("torch", 1)
        assert one is not None
        link = min(_seconds(one) for _ in range(3))
        length = max(1, min(CHAIN, int(TURN_S / link)))
        chains = {way: (f, g) for way in WAYS if (f := self.chain(way, length)) and (g := self.gradient(way, length))}
        seconds: dict[str, list[float]] = {way: [] for way in chains}
        for _ in range(repeats):
            for way, (forward, gradient) in chains.items():
                if not seconds[way] or seconds[way][0] < SLOW_S:
                    seconds[way].append(_turn(gradient) - _turn(forward))
        return {way: statistics.median(times) / length * 1e6 for way, times in seconds.items()}


def _seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _turn(run: Callable[[], None]) -> float:
    """Seconds for one run, on average over a turn."""
    runs = [_seconds(run)]
    while sum(runs) < TURN_S or (len(runs) < TURN_RUNS and runs[0] < SLOW_S):
        runs.append(_seconds(run))
    return statistics.mean(runs)


def rows(quick: bool, device: str) -> Iterator[Row]:
    sizes = (SIZES[0], SIZES[-1]) if quick else SIZES
    plan = [
        (case, size, mode, mixed)
        for mode in ("pynative", "graph")
        for mixed in (False, True)
        for case in CASES
        for size in sizes
    ]
    for case, size, mode, mixed in plan:
        ms.set_context(mode=ms.PYNATIVE_MODE if mode == "pynative" else ms.GRAPH_MODE)
        found = Bench(case, size, mode, mixed, device).measure(QUICK_REPEATS if quick else REPEATS)
        yield Row(case.name, "mixed" if mixed else "alone", mode, size, found)


def backward_rows(device: str) -> Iterator[Row]:
    for mode in ("pynative", "graph"):
        for case in CASES:
            if case.name not in BACKWARD_CASES:
                continue
            for size in (SIZES[0], SIZES[-1]):
                ms.set_context(mode=ms.PYNATIVE_MODE if mode == "pynative" else ms.GRAPH_MODE)
                found = BackwardBench(case, size, mode, False, device).measure(REPEATS)
                yield Row(case.name, "back", mode, size, found)


def print_header() -> None:
    times = "".join(f"{way:>11}" for way in WAYS)
    ratios = "".join(f"{'/ ' + way:>13}" for way in WAYS[1:])
    print(f"{'µs for one link':26}{'size':>6}{times}{ratios}")


def print_row(row: Row) -> None:
    times = "".join(f"{row.microseconds[w]:11.1f}" if w in row.microseconds else f"{'-':>11}" for w in WAYS)
    ratios = "".join(f"{'-':>13}" if (ratio := row.ratio(w)) is None else f"{ratio:13.2f}" for w in WAYS[1:])
    print(f"{row.mode:9}{row.chain:6}{row.op:11}{row.size:6}{times}{ratios}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest and the largest size, fewer repeats")
    parser.add_argument("--backward", action="store_true", help="differentiate: the smallest and the largest size")
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parsed = parser.parse_args()
    ms.set_device(parsed.device)
    print_header()
    measured = []
    for row in backward_rows(parsed.device) if parsed.backward else rows(parsed.quick, parsed.device):
        print_row(row)
        measured.append(row)
    if parsed.json:
        versions = {"mindspore": ms.__version__, "torch": torch.__version__, "python": platform.python_version()}
        report = {"device": parsed.device, "versions": versions, "rows": [asdict(row) for row in measured]}
        parsed.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
