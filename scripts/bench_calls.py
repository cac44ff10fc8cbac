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
shows the medians of turns, as soon as they are measured; with --backward, what follows from the fastest runs.

    python scripts/bench_calls.py                 # all, about ten minutes on two cores
    python scripts/bench_calls.py --backward      # about five
    python scripts/bench_calls.py --quick --json calls.json
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import mindspore as ms
import torch

from bench.cases import CASES, Case
from bench.chains import WAYS, Chains, Run
from bench.turns import TURN_S, least, medians, seconds, turn

SIZES = (16, 128, 512, 2048)
MODES = ("pynative", "graph")
BACKWARD_CASES = ("leaky_relu", "softmax", "layer_norm", "conv2d", "matmul")
CHAIN = 100  # a chain is shortened until it takes about a turn
REPEATS = 5
QUICK_REPEATS = SLOW_REPEATS = 3
Plan = tuple[str, str, Case, int]  # kind of chain, mode, case and size


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


def forward_plan(quick: bool) -> list[Plan]:
    sizes = (SIZES[0], SIZES[-1]) if quick else SIZES
    return [(kind, mode, case, n) for mode in MODES for kind in ("alone", "mixed") for case in CASES for n in sizes]


def backward_plan() -> list[Plan]:
    cases = [case for case in CASES if case.name in BACKWARD_CASES]
    return [("back", *place) for place in itertools.product(MODES, cases, (SIZES[0], SIZES[-1]))]


def rows(plan: Iterable[Plan], device: str, repeats: int) -> Iterator[Row]:
    for kind, mode, case, size in plan:
        ms.set_context(mode=ms.PYNATIVE_MODE if mode == "pynative" else ms.GRAPH_MODE)
        chains = Chains(case, size, mode, device, mixed=kind == "mixed", own_weights=kind == "back")
        yield Row(case.name, kind, mode, size, measure(chains, kind == "back", repeats))


def measure(chains: Chains, backward: bool, repeats: int) -> dict[str, float]:
    """The median microseconds for one link of the chain, by way; the ways take turns."""
    one = (chains.backward if backward else chains.forward)("torch", 1)
    assert one is not None
    link = min(seconds(one) for _ in range(3))
    length = max(1, min(CHAIN, int(TURN_S / link)))
    repeats = min(repeats, SLOW_REPEATS) if link > TURN_S else repeats
    forward = {way: run for way in WAYS if (run := chains.forward(way, length))}
    if backward:
        found = time_of_backward(chains, forward, length, repeats)
    else:
        found = medians({way: functools.partial(turn, run) for way, run in forward.items()}, repeats)
    return {way: time / length * 1e6 for way, time in found.items()}


def time_of_backward(chains: Chains, forward: dict[str, Run], length: int, repeats: int) -> dict[str, float]:
    """What forward and backward take longer than forward. The least times, since this is a difference."""
    both = {way: run for way in forward if (run := chains.backward(way, length))}
    times = least({(way, run): run for way in both for run in (both[way], forward[way])}, repeats)
    return {way: times[way, both[way]] - times[way, forward[way]] for way in both}


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
    plan = backward_plan() if parsed.backward else forward_plan(parsed.quick)
    for row in rows(plan, parsed.device, QUICK_REPEATS if parsed.quick else REPEATS):
        print_row(row)
        measured.append(row)
    if parsed.json:
        versions = {"mindspore": ms.__version__, "torch": torch.__version__, "python": platform.python_version()}
        report = {"device": parsed.device, "versions": versions, "rows": [asdict(row) for row in measured]}
        parsed.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
