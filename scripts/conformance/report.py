"""The figures of a sweep, for JSON and for people."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from .calls import functional_overloads
from .verdict import CRASHED, FAILED, PASSED, SKIPPED, Outcome

EXPECTED_MISSES = Path(__file__).parent / "expected_misses.yaml"


def load_expected_misses(device: str) -> dict[str, str]:
    """Overload to the reason why it cannot have PyTorch's bits on "CPU" or "GPU"."""
    reasons = yaml.safe_load(EXPECTED_MISSES.read_text())
    return reasons["everywhere"] | reasons[device]


def summarise(outcomes: Iterable[Outcome], device: str) -> dict[str, Any]:
    """The figures of one sweep, as the report prints them and as JSON holds them."""
    statuses: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    reached: set[str] = set()
    compared: set[str] = set()
    misses: dict[str, list[Outcome]] = defaultdict(list)
    expected = load_expected_misses(device)
    for outcome in outcomes:
        statuses[outcome.status] += 1
        reached.add(outcome.overload)
        if outcome.status == SKIPPED:
            skips[outcome.cause] += 1
            continue
        compared.add(outcome.overload)
        if outcome.status in (FAILED, CRASHED):
            misses[outcome.overload].append(outcome)
    judged = statuses[PASSED] + statuses[FAILED] + statuses[CRASHED]
    functional = functional_overloads()
    return {
        "calls": sum(statuses.values()),
        "reached": len(reached),
        "compared": len(compared),
        "passed": statuses[PASSED],
        "failed": statuses[FAILED],
        "crashed": statuses[CRASHED],
        "skipped": statuses[SKIPPED],
        "percent": 100.0 * statuses[PASSED] / judged if judged else 0.0,
        "skipped_by_reason": dict(skips.most_common()),
        "misses": {
            overload: {
                "count": len(found),
                "cause": found[0].cause,
                "call": found[0].key,
                "source": found[0].source,
                "expected": expected.get(overload),
            }
            for overload, found in sorted(misses.items())
        },
        "not_reached": [name for name in functional if name not in reached],
    }


def print_report(reports: dict[str, dict[str, Any]]) -> None:
    columns = ("reached", "compared", "calls", "passed", "failed", "crashed", "skipped", "percent")
    print(f"{'dtype':16}" + "".join(f"{c:>10}" for c in columns))
    for dtype, report in reports.items():
        cells = (f"{report[c]:10.2f}" if c == "percent" else f"{report[c]:10}" for c in columns)
        print(f"{dtype:16}{''.join(cells)}")
    skips: Counter[str] = Counter()
    for report in reports.values():
        skips.update(report["skipped_by_reason"])
    if skips:
        print("\nskipped calls")
        for reason, count in skips.most_common():
            print(f"{count:8}  {reason}")
    for dtype, report in reports.items():
        if report["misses"]:
            print(f"\nmisses, {dtype}")
        for overload, miss in report["misses"].items():
            print(f"{miss['count']:8}  {overload}: {miss['cause']}")
            print(f"{'':10}{miss['source']}: {miss['call'][:200]}")
            if miss["expected"]:
                print(f"{'':10}expected: {miss['expected']}")
