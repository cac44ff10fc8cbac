"""Child processes of the sweeps: one that dies or hangs costs what it was doing, and the rest is done."""

from __future__ import annotations

import os
import time

import pytest

from conformance.workers import Lost, Share, in_workers


def squares(share: Share, count: int, deadly: int, endless: int) -> None:
    """Squares of the share's numbers; one number ends the process, another never ends."""
    for number in range(share.part, count, share.parts):
        if share.is_done(number):
            continue
        share.announce(number, f"number {number}")
        if number == deadly:
            os._exit(3)
        if number == endless:
            time.sleep(600)
        share.finish(number, number**2)


def dies_between_calls(share: Share) -> None:
    share.announce(0, "number 0")
    share.finish(0, 0)
    os._exit(4)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_worker_that_dies_costs_one_result(jobs: int) -> None:
    found = list(in_workers(squares, (7, 2, -1), jobs))
    assert sorted(one for one in found if not isinstance(one, Lost)) == [0, 1, 9, 16, 25, 36]
    assert [one for one in found if isinstance(one, Lost)] == [Lost("number 2", 3)]


def test_a_worker_that_hangs_costs_one_result() -> None:
    found = list(in_workers(squares, (4, -1, 1), 1, timeout=15))  # seconds; a process starts in fewer
    assert found == [0, Lost("number 1", None), 4, 9]


def test_a_worker_that_dies_between_calls_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="a worker died between calls, exit code 4"):
        list(in_workers(dies_between_calls, (), 1))
