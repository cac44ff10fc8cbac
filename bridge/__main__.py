"""The command line: `python -m bridge coverage`."""

from __future__ import annotations

import argparse

from bridge import coverage
from bridge.torch import coverage as functions


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bridge", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    cover = commands.add_parser("coverage", help="which ATen overloads are callable, and why the others are not")
    cover.add_argument("--json", action="store_true", help="everything, as JSON")
    cover.add_argument("--verbose", action="store_true", help="a line for each overload")
    cover.add_argument("--functions", action="store_true", help="PyTorch's public functions instead (bridge.torch)")
    args = parser.parse_args()
    report = functions.print_report if args.functions else coverage.print_report
    report(args.json, args.verbose)


if __name__ == "__main__":
    main()
