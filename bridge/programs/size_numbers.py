"""The numbers of the sizes and answers that data decides (data_sizes.py): where a run asks for them.

The same place of a function has the same number in each run, whatever a run leaves out before it: an image without
objects that a loop goes past, a branch, an expert. Numbers are in the order of the run.
"""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import sys
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

_BACKWARD = (sys.maxsize,)


class SizeNumber(NamedTuple):
    """One of them.

    Args:
        path: see Path.
        answers: how many answers the run has asked for there, with this one.
        sizes: how many sizes since then, with this one; 0 for an answer.
        is_integer: whether it is that of an integer that Python asks for.
    """

    path: tuple[int, ...]
    answers: int
    sizes: int
    is_integer: bool = False

    @property
    def is_answer(self) -> bool:
        """Whether it is an answer's."""
        return not self.sizes

    @classmethod
    def read(cls, written: Sequence[Any]) -> SizeNumber:
        """A number out of JSON."""
        path, *others = written
        return cls(tuple(path), *others)


class Path:
    """Where a function is: for each running function of its own, from the outermost on, how often that one has gone
    back, as a loop does, its instruction, and whether it rests there, as a generator does.

    Args:
        outermost: the code that runs the function.
    """

    def __init__(self, outermost: CodeType) -> None:
        self._outermost = outermost
        self._parts: list[_Part] = []

    def note(self, frames: Sequence[FrameType]) -> None:
        """It calls PyTorch, with these running, from the innermost on."""
        before, self._parts = self._parts, []
        inner: list[_Part] = []
        own = [*reversed(frames)]
        for i, frame in enumerate(own):
            part = before[i] if i < len(before) and before[i].frame is frame else _Part(frame)
            inner = before[i + 1 :] if part.is_where_it_was else []
            if i + 1 < len(own):
                is_ended = bool(inner) and inner[0].frame is not own[i + 1]
            else:
                is_ended = bool(inner) and not inner[0].is_generators
            part.go_on(is_ended)
            self._parts.append(part)
        for part in itertools.takewhile(lambda part: part.is_generators, inner):
            part.rests = True
            self._parts.append(part)

    def is_outermost(self, frame: FrameType) -> bool:
        """Whether what is outside of this one is none of the function."""
        return frame.f_code is self._outermost

    def forget(self) -> None:
        """The function has ended."""
        self._parts = []

    @property
    def here(self) -> tuple[int, ...]:
        """That of the last call. Backward, which runs none of its functions, comes after all of them."""
        return (
            _BACKWARD
            if not self._parts
            else tuple(number for part in self._parts for number in (part.count, part.instruction, part.rests))
        )


class _Part:
    """One function that runs.

    Args:
        frame: its frame, which stays alive, so that no later one is taken for it.
    """

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame
        self.count = 0
        self.instruction = -1
        self.rests = False
        self._calls = _calls(frame.f_code)

    @property
    def is_generators(self) -> bool:
        return bool(self.frame.f_code.co_flags & inspect.CO_GENERATOR)

    @property
    def is_where_it_was(self) -> bool:
        """Whether it is at the instruction of the last call."""
        return self.instruction == self._now

    @property
    def _now(self) -> int:
        return self._calls.get(self.frame.f_lasti, self.frame.f_lasti)

    def go_on(self, again: bool) -> None:
        """It is at an instruction, perhaps for another time: what that had called has ended."""
        now = self._now
        self.count += again or now < self.instruction
        self.instruction, self.rests = now, False


@functools.lru_cache(maxsize=1024)
def _calls(code: CodeType) -> dict[int, int]:
    """Python 3.11 has two instructions for a call, of which it makes the first one or both. By the offset of each first
    one that of the second."""
    pairs = itertools.pairwise(dis.get_instructions(code))
    return {first.offset: second.offset for first, second in pairs if first.opname == "PRECALL"}
