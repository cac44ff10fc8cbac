"""The numbers of the sizes and answers that data decides (data_sizes.py): where a run asks for them.

The same place of a function has the same number in each run, whatever a run leaves out before it: an image without
objects that a loop goes past, a branch, an expert. Numbers are in the order of the run.
"""

from __future__ import annotations

import dis
import functools
import itertools
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple


class SizeNumber(NamedTuple):
    """One of them.

    Args:
        path: see Path.
        answers: how many answers the run has asked for there, with this one.
        sizes: how many sizes since then, with this one; 0 for an answer.
    """

    path: tuple[int, ...]
    answers: int
    sizes: int

    @property
    def is_answer(self) -> bool:
        """Whether it is an answer's."""
        return not self.sizes

    @classmethod
    def read(cls, written: Sequence[Any]) -> SizeNumber:
        """A number out of JSON."""
        path, answers, sizes = written
        return cls(tuple(path), answers, sizes)


class Path:
    """Where a function is: for each running function of its own, from the outermost on, how often that one has gone
    back, as a loop does, and its instruction.

    Args:
        outermost: the code that runs the function.
    """

    def __init__(self, outermost: CodeType) -> None:
        self._outermost = outermost
        self._frames: list[FrameType] = []  # they stay alive, so that no later one is taken for them
        self._parts: list[tuple[int, int]] = []
        self._calls: list[dict[int, int]] = []

    def note(self, frames: Sequence[FrameType]) -> None:
        """It calls PyTorch, with these running, from the innermost on."""
        own = [*reversed(frames)]
        parts, calls = [], []
        for i, frame in enumerate(own):
            ran = i < len(self._frames) and self._frames[i] is frame
            count, before = self._parts[i] if ran else (0, -1)
            calls.append(self._calls[i] if ran else _calls(frame.f_code))
            instruction = calls[-1].get(frame.f_lasti, frame.f_lasti)
            if instruction < before or (instruction == before and self._has_ended(i + 1, own)):
                count += 1
            parts.append((count, instruction))
        self._frames, self._parts, self._calls = own, parts, calls

    def _has_ended(self, depth: int, own: Sequence[FrameType]) -> bool:
        """Whether the function that ran at this depth is not among those that run now."""
        return depth < len(self._frames) and (depth >= len(own) or own[depth] is not self._frames[depth])

    def is_outermost(self, frame: FrameType) -> bool:
        """Whether what is outside of this one is none of the function."""
        return frame.f_code is self._outermost

    def forget(self) -> None:
        """The function has ended."""
        self._frames, self._parts, self._calls = [], [], []

    @property
    def here(self) -> tuple[int, ...]:
        """That of the last call."""
        return tuple(number for part in self._parts for number in part)


@functools.lru_cache(maxsize=1024)
def _calls(code: CodeType) -> dict[int, int]:
    """Python 3.11 has two instructions for a call, of which it makes the first one or both. By the offset of each first
    one that of the second."""
    pairs = itertools.pairwise(dis.get_instructions(code))
    return {first.offset: second.offset for first, second in pairs if first.opname == "PRECALL"}
