#!/usr/bin/env python3
"""Random calls, valid and invalid, of every operator: none may end the process, hang it or make it grow.

    python scripts/stress.py                        # 10,000 calls
    python scripts/stress.py --calls 500 --seed 3
    python scripts/stress.py --seed 0 --only 1234   # one call again, in this process

The calls run in child processes, so that a crash costs one call and is reported with its arguments.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import resource
import sys
from dataclasses import dataclass, field

import mindspore as ms
from tqdm import tqdm

from bridge import aten
from conformance.workers import Lost, Share, in_workers
from misuse.memory import rss
from misuse.random_calls import Caller, describe

SECONDS_PER_CALL = 30
MEMORY_LIMIT = 24 << 30  # of address space: a hopeless allocation fails at once
UNEXPECTED = "unexpected "


@dataclass
class Report:
    """How some calls went.

    Attributes:
        outcomes: how often each was.
        failures: the calls that ended or hung the process or raised something unexpected.
        memory: (call, MiB), now and then.
    """

    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)
    memory: list[tuple[int, int]] = field(default_factory=list)


def run(seed: int, calls: int, progress: bool = False) -> Report:
    """Make `calls` calls in a child process; a new one follows one that died."""
    report = Report()
    made = in_workers(_work, (seed, calls), jobs=1)
    for found in tqdm(made, total=calls, unit="call", disable=not progress):
        if isinstance(found, Lost):
            report.failures.append(f"{found.what}: the process ended with {found.exit_code}")
            continue
        call, outcome, size = found
        report.outcomes[outcome.split(":")[0]] += 1
        if outcome.startswith(UNEXPECTED):
            report.failures.append(f"{call}: {outcome}")
        if size is not None:
            report.memory.append(size)
    return report


def _work(share: Share, seed: int, calls: int) -> None:
    """Make the calls that are not done; each is announced before it is made."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    caller = Caller(seed)
    probe = ms.Tensor([-1.0, 2.0])
    for number in range(calls):
        if share.is_done(number):
            continue
        name, args, kwargs = caller.make(number)
        arguments = [*map(describe, args), *(f"{k}={describe(v)}" for k, v in kwargs.items())]
        call = f"{number} aten.{name}({', '.join(arguments)})"
        share.announce(number, call)
        faulthandler.dump_traceback_later(SECONDS_PER_CALL, exit=True)
        try:
            outcome = caller.call(name, args, kwargs)
        except Exception as error:
            outcome = f"{UNEXPECTED}{type(error).__name__}: {str(error)[:300]!r}"
        faulthandler.cancel_dump_traceback_later()
        size = None
        if number % 100 == 99:
            assert aten.leaky_relu(probe, 0.5).asnumpy().tolist() == [-0.5, 2.0]
            size = number, rss()
        share.finish(number, (call, outcome, size))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="make this one call in this process")
    options = parser.parse_args()
    if options.only is not None:
        caller = Caller(options.seed)
        name, args, kwargs = caller.make(options.only)
        print(name, *args, kwargs, sep="\n", flush=True)
        print(caller.call(name, args, kwargs))
        return 0
    report = run(options.seed, options.calls, progress=True)
    print(*(f"{outcome}: {count}" for outcome, count in report.outcomes.most_common()), sep="\n")
    steps = [f"{call + 1}: {size}" for call, size in report.memory if call % 1000 == 999]
    print(f"RSS in MiB after call: {', '.join(steps)}")
    print(*report.failures, f"{len(report.failures)} failures", sep="\n")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
