"""Judges changed calls in child processes."""

from __future__ import annotations

import faulthandler
import pickle
import resource
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from bridge.op.table import Fact, with_fact
from conformance.calls import Call
from conformance.check import set_device
from conformance.dtypes import check_representable
from conformance.workers import Lost, Share, in_workers

from .changes import changes
from .judge import CRASHED, SKIPPED, Verdict, verdict

MEMORY_LIMIT = 16 << 30  # of address space: a hopeless allocation fails at once
SECONDS_PER_CALL = 10


def usable(call: Call) -> bool:
    """Whether MindSpore's tensors can be the call's, PyTorch checks its arguments, and another process can have it."""
    if call.overload in with_fact(Fact.CRASHES):
        return False
    try:
        for tensor in call.tensors():
            check_representable(tensor)
        pickle.loads(pickle.dumps(call))
    except Exception:
        return False
    return True


def sweep(calls: list[Call], jobs: int) -> Iterator[Verdict]:
    """The verdicts on all changes of the calls."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls"
        path.write_bytes(pickle.dumps(calls))
        for found in in_workers(_work, (str(path),), jobs):
            if isinstance(found, Lost):
                who, overload, text = found.what
                kind = CRASHED if who == "bridge" else SKIPPED
                yield Verdict(overload, kind, text, f"{who} ended the process with {found.exit_code}")
            else:
                yield found


def _work(share: Share, path: str) -> None:
    """Judge the changes of every so many recorded calls."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    set_device("CPU")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    calls = pickle.loads(Path(path).read_bytes())
    for number in range(share.part, len(calls), share.parts):
        for place, call in enumerate(changes(calls[number])):
            key = (number, place)
            if share.is_done(key):
                continue

            def announce(who: str, call: Call = call, key: tuple[int, int] = key) -> None:
                share.announce(key, (who, call.overload, f"{call.source} in {call.key}"[:300]))

            faulthandler.dump_traceback_later(SECONDS_PER_CALL, exit=True)
            share.finish(key, verdict(call, announce))
            faulthandler.cancel_dump_traceback_later()
