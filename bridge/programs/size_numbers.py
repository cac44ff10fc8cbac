"""The numbers of the sizes and answers that data decides (data_sizes.py): where a run asks for them.

The same place of a function has the same number in each run, whatever a run leaves out before it: an image without
objects that a loop goes past, a branch, an expert. Numbers are in the order of the run.
"""

from __future__ import annotations

import bisect
import dis
import functools
import inspect
import itertools
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

_JUMPS = {*dis.hasjrel, *dis.hasjabs}


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
    """Where a function is, as numbers that grow as it goes on: how often its outermost function of its own has become
    another one, as in a `Sequential`, and for each running one, from there on, where that is (see _Part).

    Args:
        outermost: the code that runs the function.
    """

    def __init__(self, outermost: CodeType) -> None:
        self._outermost = outermost
        self._count = 0
        self._parts: list[_Part] = []

    def note(self, frames: Sequence[FrameType]) -> None:
        """It calls PyTorch, with these running, from the innermost on."""
        before, self._parts = self._parts, []
        own = [*reversed(frames)]
        inner: list[_Part] = []
        self._count += [part.frame for part in before[:1]] != own[:1]
        for i, frame in enumerate(own):
            part = before[i] if i < len(before) and before[i].frame is frame else _Part(frame)
            inner = before[i + 1 :] if part.is_where_it_was else []
            if i + 1 < len(own):
                has_ended = bool(inner) and inner[0].frame is not own[i + 1]
            else:
                has_ended = bool(inner) and not inner[0].is_generators
            part.go_on(has_ended)
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
        """That of the last call."""
        return self._count, *(number for part in self._parts for number in part.place)

    @property
    def rounds(self) -> int:
        """How many rounds the `while` has made that has made the most, of those in which it is."""
        return max((part.rounds for part in self._parts), default=0)


class _Part:
    """One function that runs: in which loops it is, in which round of each, and at which instruction, perhaps again.

    Args:
        frame: its frame, which stays alive, so that no later one is taken for it.
    """

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame
        self.rests = False
        self._code = _code(frame.f_code)
        self._instruction = -1
        self._again = 0
        self._loops: dict[tuple[int, int], int] = {}  # those that it is in, from the outermost on

    @property
    def is_generators(self) -> bool:
        return bool(self.frame.f_code.co_flags & inspect.CO_GENERATOR)

    @property
    def is_where_it_was(self) -> bool:
        """Whether it is at the instruction of the last call."""
        return self._instruction == self._code.instruction(self.frame.f_lasti)

    @property
    def place(self) -> Iterator[int]:
        """It, in numbers that grow."""
        for (start, _), count in self._loops.items():
            yield from (start, count)
        yield from (self._instruction, self._again, self.rests)

    @property
    def rounds(self) -> int:
        """How many the `while` has made that has made the most."""
        return max((count for loop, count in self._loops.items() if loop in self._code.whiles), default=0)

    def go_on(self, has_ended: bool) -> None:
        """It calls PyTorch.

        Args:
            has_ended: whether what it had called at the same instruction has ended.
        """
        now = self._code.instruction(self.frame.f_lasti)
        if now == self._instruction:
            self._again += has_ended or self.rests
        else:
            loops = [loop for loop in self._code.loops if loop[0] <= now <= loop[1]]
            entered = {loop: self._loops.get(loop, 0) for loop in loops}
            common = [loop for loop in loops if loop in self._loops]
            if now < self._instruction and common:
                entered[common[-1]] += 1
            self._again, self._loops = 0, entered
        self._instruction, self.rests = now, False


class _Code:
    """What tells where a function's code is.

    Args:
        code: of the function.
    """

    def __init__(self, code: CodeType) -> None:
        found = [one for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG"]
        self._offsets = [one.offset for one in found]
        # Python 3.11 has two instructions for a call, of which it makes the first one or both.
        self._second = {one.offset: two.offset for one, two in itertools.pairwise(found) if one.opname == "PRECALL"}
        jumps = ((one.argval, one.offset) for one in found if one.opcode in _JUMPS and one.argval <= one.offset)
        ends: dict[int, int] = {}
        for start, end in jumps:
            ends[start] = max(end, ends.get(start, end))
        self.loops = sorted(ends.items(), key=lambda loop: (loop[0], -loop[1]))
        """Where its loops begin and end, from the outermost on."""
        fors = {one.offset for one in found if one.opname == "FOR_ITER"}
        self.whiles = {loop for loop in self.loops if loop[0] not in fors}

    def instruction(self, offset: int) -> int:
        """That at an offset, or before: a specialized one may say that it is behind its beginning."""
        found = self._offsets[bisect.bisect_right(self._offsets, offset) - 1]
        return self._second.get(found, found)


def instruction(frame: FrameType) -> int:
    """The offset of the instruction at which a function is."""
    return _code(frame.f_code).instruction(frame.f_lasti)


_code = functools.lru_cache(maxsize=1024)(_Code)
