"""Times things that take turns of 50 ms, so that threads which sleep in between are awake for most of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

TURN_S = 0.05
TURN_RUNS = 4  # at least: the first wakes threads and fills caches
SLOW_S = 0.5  # what takes longer runs once: MindSpore's conv2d takes seconds


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def turn(run: Callable[[], Any]) -> float:
    """Seconds for one run, on average over a turn."""
    runs = [seconds(run)]
    while sum(runs) < TURN_S or (len(runs) < TURN_RUNS and runs[0] < SLOW_S):
        runs.append(seconds(run))
    return statistics.mean(runs)


def medians(turns: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """The median seconds of so many turns of each."""
    taken: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(repeats):
        for name, take in turns.items():
            if not taken[name] or taken[name][0] < SLOW_S:
                taken[name].append(take())
    return {name: statistics.median(times) for name, times in taken.items()}
