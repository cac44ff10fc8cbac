"""Records calls and judges them, in this process or in others."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import sys
from collections.abc import Iterator

import torch
from tqdm import tqdm

from .calls import Call
from .check import Check, Forward
from .gradients import Gradients, SecondGradients
from .options import Options
from .record import Recorder
from .sources import recorded_calls
from .verdict import CRASHED, SKIPPED, Outcome, judge
from .workers import Lost, Share, in_workers

CALL_TIMEOUT_S = 300
CHECKS: dict[str, type[Check]] = {"forward": Forward, "gradients": Gradients, "gradgrad": SecondGradients}


def checker(options: Options) -> Check:
    return CHECKS[options.check](options.mode, options.device)


def sweep(dtype: torch.dtype, options: Options, progress: bool = False) -> Iterator[Outcome]:
    """Record and judge in this process."""
    check, recorder = checker(options), Recorder()
    for call in recorded_calls(dtype, options, recorder, progress):
        yield judge(call, check)
    yield from _without_functional(recorder, options)


def _without_functional(recorder: Recorder, options: Options) -> Iterator[Outcome]:
    for overload, count in recorder.without_functional.items():
        if options.selects(overload):
            yield from itertools.repeat(Outcome(overload, SKIPPED, "in-place or out, no functional counterpart"), count)


def isolated_sweep(dtype: torch.dtype, options: Options, jobs: int) -> Iterator[Outcome]:
    """Record and judge in worker processes: a call that ends or hangs one costs no other."""
    name = str(dtype).removeprefix("torch.")
    with tqdm(desc=f"{name}, isolated", unit="call", file=sys.stderr) as bar:
        for found in in_workers(_work, (dtype, options), jobs, CALL_TIMEOUT_S):
            if isinstance(found, Lost):
                code = found.exit_code
                cause = f"no result in {CALL_TIMEOUT_S} s" if code is None else f"exit code {code}"
                yield dataclasses.replace(found.what, cause=cause)
            else:
                bar.update()
                yield found


def _work(share: Share, dtype: torch.dtype, options: Options) -> None:
    """A worker of an isolated sweep: announces each call before it makes it, so that a crash has a name."""
    check, recorder = checker(options), Recorder()
    for call in recorded_calls(dtype, options, recorder):
        if _part_of(call, share.parts) != share.part or share.is_done(call.key):
            continue
        share.announce(call.key, Outcome(call.overload, CRASHED, "", call.source, call.key))
        share.finish(call.key, judge(call, check))
    if share.part == 0:
        for outcome in _without_functional(recorder, options):
            share.finish("", outcome)


def _part_of(call: Call, parts: int) -> int:
    return int.from_bytes(hashlib.md5(call.key.encode()).digest()[:4], "big") % parts
