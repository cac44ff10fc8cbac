#!/usr/bin/env python3
"""Calls that are a little off: does the bridge refuse what PyTorch refuses, in its words, and answer what it answers?

Each recorded call of scripts/conformance is changed in one place (another dtype, rank or size, no dimension, no
element, None, a dimension out of range, ...) and made by PyTorch on the CPU and by the bridge. Without --changes the
calls are PyTorch's own examples of errors (OpInfo's error inputs), through its Python functions.

    python scripts/refusals.py                                # error inputs
    python scripts/refusals.py --changes --calls 2 --jobs 2   # two recorded calls for each overload
    python scripts/refusals.py --changes --ops 'conv*,min' --json report.json

The calls run in child processes, so that a crash costs one call.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import random
import sys
import warnings
from pathlib import Path

import torch
from tqdm import tqdm

from conformance.check import set_device
from conformance.options import Options
from conformance.sources import recorded_calls
from misuse.error_inputs import error_inputs
from misuse.judge import SAME, SKIPPED, Verdict
from misuse.sweep import sweep, usable


def report(verdicts: list[Verdict]) -> None:
    """Print how many calls have each verdict and, for those that differ, one call of each overload."""
    kinds = collections.Counter(verdict.kind for verdict in verdicts)
    print(*(f"{count:8}  {kind}" for kind, count in kinds.most_common()), sep="\n")
    for kind in kinds:
        if kind in (SAME, SKIPPED):
            continue
        print(f"\n{kind}")
        by_overload = collections.defaultdict(list)
        for verdict in verdicts:
            if verdict.kind == kind:
                by_overload[verdict.overload].append(verdict)
        for overload, found in sorted(by_overload.items()):
            print(f"{len(found):6}  {overload}: {found[0].call[:180]}\n{'':8}{found[0].detail}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", action="store_true", help="change recorded calls")
    parser.add_argument("--calls", type=int, default=2, help="how many recorded calls of each overload to change")
    parser.add_argument("--most", type=int, help="change this many recorded calls, chosen at random")
    parser.add_argument("--dtype", default="float32", help="of the recorded calls")
    parser.add_argument("--ops", default="", help="comma-separated overloads, packets or patterns, such as 'conv*,add'")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write all that differ here")
    asked = parser.parse_args()
    if asked.changes:
        ops = tuple(p for p in asked.ops.split(",") if p)
        options = Options(ops=ops, max_calls=asked.calls, max_samples=8)
        recorded = recorded_calls(getattr(torch, asked.dtype), options, progress=True)
        calls = list(filter(usable, recorded))
        if asked.most:
            calls = random.Random(0).sample(calls, min(asked.most, len(calls)))
        verdicts = list(tqdm(sweep(calls, asked.jobs), unit="call", file=sys.stderr))
    else:
        set_device("CPU")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verdicts = list(error_inputs())
    report(verdicts)
    if asked.json:
        differ = [dataclasses.asdict(v) for v in verdicts if v.kind != SAME]
        asked.json.write_text(json.dumps(differ, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
