"""Times things that take turns of 50 ms, so that threads which sleep in between are awake for most of it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

TURN_S = 0.05
TURN_RUNS = 4  # at least: the first wakes threads and fills caches
SLOW_S = 0.5  # what takes longer runs once: MindSpore's conv2d takes seconds

Key = TypeVar("Key")


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def runs_of_a_turn(run: Callable[[], Any]) -> list[float]:
    """The seconds of each run in a turn."""
    runs = [seconds(run)]
    while sum(runs) < TURN_S or (len(runs) < TURN_RUNS and runs[0] < SLOW_S):
        runs.append(seconds(run))
    return runs


def turn(run: Callable[[], Any]) -> float:
    """Seconds for one run, on average over a turn."""
    return statistics.mean(runs_of_a_turn(run))


def least(runs: Mapping[Key, Callable[[], Any]], repeats: int) -> dict[Key, float]:
    """The least seconds for one run of each, over so many turns."""
    taken = dict.fromkeys(runs, math.inf)
    for _ in range(repeats):
        for key, run in runs.items():
            taken[key] = min(taken[key], *runs_of_a_turn(run))
    return taken


def medians(turns: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """The median seconds of so many turns of each."""
    taken: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(repeats):
        for name, take in turns.items():
            if not taken[name] or taken[name][0] < SLOW_S:
                taken[name].append(take())
    return {name: statistics.median(times) for name, times in taken.items()}
