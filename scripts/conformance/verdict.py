"""What may become of one call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .calls import Call

PASSED, FAILED, SKIPPED, CRASHED = "passed", "failed", "skipped", "crashed"


class Skip(Exception):
    """This call cannot be compared; the message is the reason that the report counts."""


class Mismatch(Exception):
    """The bridge's result differs from PyTorch's."""


@dataclass(frozen=True)
class Outcome:
    """What became of one call: a status, and the reason when it is not a pass."""

    overload: str
    status: str
    cause: str = ""
    source: str = ""
    key: str = ""


def judge(call: Call, check: Callable[[Call], None]) -> Outcome:
    """Run one check and turn whatever happens into an outcome: nothing that one call does may end a sweep."""
    status, cause = PASSED, ""
    try:
        check(call)
    except Skip as skip:
        status, cause = SKIPPED, str(skip)
    except Mismatch as mismatch:
        status, cause = FAILED, str(mismatch)
    except Exception as error:
        status, cause = FAILED, f"{type(error).__name__}: {_first_line(error)}"
    return Outcome(call.overload, status, cause, call.source, call.key)


@contextlib.contextmanager
def skip_on_error(reason: str) -> Iterator[None]:
    """PyTorch's own refusal is no miss of the bridge."""
    try:
        yield
    except Exception as error:
        raise Skip(reason) from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return (lines[0] if lines else "no message")[:200]
