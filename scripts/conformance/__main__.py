"""The command: the package's docstring has examples."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from . import __doc__ as description
from .dtypes import SHARED_DTYPES
from .options import Options
from .report import print_report, summarise
from .sweep import isolated_sweep, sweep


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default="", help="comma-separated dtypes (default float32; float64 for --gradgrad)")
    parser.add_argument("--mode", choices=("pynative", "graph"), default="pynative")
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU", help="PyTorch's reference runs there too")
    parser.add_argument("--ops", default="", help="comma-separated overloads, packets or patterns, such as 'conv*,add'")
    parser.add_argument("--limit", type=int, help="only the first rows of OpInfo")
    parser.add_argument("--max-samples", type=int, help="only the first samples of each row")
    parser.add_argument("--max-calls", type=int, help="at most this many calls for each overload")
    parser.add_argument("--own-samples", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--backward-calls",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="record what the samples' backward reaches as well (kernels such as leaky_relu_backward)",
    )
    check = parser.add_mutually_exclusive_group()
    check.add_argument("--gradients", action="store_true", help="compare first-order gradients instead of results")
    check.add_argument("--gradgrad", action="store_true", help="compare second-order gradients, to float64 round-off")
    parser.add_argument("--isolate", action="store_true", help="judge in a child process: a crash costs one call")
    parser.add_argument("--jobs", type=int, default=1, help="child processes; more than one implies --isolate")
    parser.add_argument("--json", type=Path, help="write the report here too")
    parser.add_argument("--minimum", type=float, default=0.0, help="exit with 1 when fewer percent of the calls pass")
    parsed = parser.parse_args(arguments)
    parsed.dtypes = [d for d in (parsed.dtypes or ("float64" if parsed.gradgrad else "float32")).split(",") if d]
    unknown = [d for d in parsed.dtypes if d not in SHARED_DTYPES]
    if unknown:
        parser.error(f"unknown dtypes: {', '.join(unknown)}; there are {', '.join(SHARED_DTYPES)}")
    if parsed.mode == "graph" and parsed.gradgrad:
        parser.error("second-order gradients are compared in PyNative mode")
    return parsed


def options_of(parsed: argparse.Namespace) -> Options:
    return Options(
        mode=parsed.mode,
        device=parsed.device,
        check="gradients" if parsed.gradients else "gradgrad" if parsed.gradgrad else "forward",
        ops=tuple(p for p in parsed.ops.split(",") if p),
        max_calls=parsed.max_calls,
        max_samples=parsed.max_samples,
        limit=parsed.limit,
        own_samples=parsed.own_samples,
        backward_calls=parsed.backward_calls,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = parse_arguments(arguments)
    options = options_of(parsed)
    reports = {}
    for name in parsed.dtypes:
        dtype = getattr(torch, name)
        if parsed.isolate or parsed.jobs > 1:
            outcomes = isolated_sweep(dtype, options, parsed.jobs)
        else:
            outcomes = sweep(dtype, options, progress=True)
        reports[name] = summarise(outcomes, options.device)
    if parsed.json:
        parsed.json.write_text(json.dumps({"options": dataclasses.asdict(options), "dtypes": reports}, indent=1))
    print_report(reports)
    return 0 if all(report["percent"] >= parsed.minimum for report in reports.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
