"""Compares any ATen operator by name with PyTorch, bit for bit, in both modes.

The samples are PyTorch's own (OpInfo) and, for what those do not reach, the ones in samples.py.
tests/test_cpu_op.py and tests/test_gpu_op.py are its commands.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import itertools
import sys
from collections import Counter
from typing import Any

import torch

from .calls import Call
from .check import Forward
from .options import Options
from .record import Recorder
from .sources import opinfo_entries, record_source
from .verdict import FAILED, PASSED, SKIPPED, Outcome, judge

MODES = ("pynative", "graph")
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
MOST_CALLS = {"pynative": 50, "graph": 3}  # a graph takes a good part of a second to compile


def likeness(op: str, entry: Any) -> float:
    """How alike the operator's name and that of an OpInfo row are; the row of the same name is the likeliest."""
    names = [entry.name, *(alias.name for alias in entry.aliases)]
    packet = op.partition(".")[0]
    return max(difflib.SequenceMatcher(None, packet, name.rpartition(".")[2]).ratio() for name in names)


@functools.cache
def calls(op: str, device: str) -> list[Call]:
    """The recorded calls of one OpInfo row that reaches the operator, or our own samples of it.

    Recording every row takes about a minute, so those with a similar name come first and the first that has calls ends
    the search.
    """
    options = Options(device=device, ops=(op,), backward_calls="backward" in op)
    rows = opinfo_entries()
    order = sorted(range(len(rows)), key=lambda i: -likeness(op, rows[i]))
    likeliest, others = order[:8], order[8:]
    for dtype, source in itertools.chain(
        itertools.product(DTYPES, [*likeliest, None]), itertools.product(DTYPES, others)
    ):
        recorded = record_source(source, Recorder(), dtype, options)
        found = [call for call in recorded if options.selects(call.overload)]
        if found:
            return found
    return []


@functools.cache
def checker(mode: str, device: str) -> Forward:
    return Forward(mode, device)


def outcomes(op: str, mode: str, device: str) -> list[Outcome]:
    """One verdict for each call, on at most MOST_CALLS of them, spread over all."""
    recorded = calls(op, device)
    step = max(1, len(recorded) // MOST_CALLS[mode])
    check = checker(mode, device)
    return [judge(call, check) for call in recorded[::step][: MOST_CALLS[mode]]]


def assert_bits_are_pytorchs(op: str, mode: str, device: str) -> None:
    found = outcomes(op, mode, device)
    assert [outcome for outcome in found if outcome.status not in (PASSED, SKIPPED)] == []
    assert PASSED in {outcome.status for outcome in found}, f"no call was compared: {found}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU")
    parser.add_argument("ops", nargs="+", help="names of operators or overloads, or patterns")
    parsed = parser.parse_args()
    good = True
    for op in parsed.ops:
        for mode in MODES:
            found = outcomes(op, mode, parsed.device)
            counts = Counter(outcome.status for outcome in found)
            text = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no samples"
            print(f"{op:30} {mode:10} {text}", flush=True)
            for outcome in found:
                if outcome.status != PASSED:
                    print(f"    {outcome.status}: {outcome.cause}\n        {outcome.key:.200}")
            good &= bool(found) and not counts[FAILED]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
