"""A question that comes twice in a run has one answer: PyTorch's distributions ask in a check whether all elements are
right, return what they asked for, and the caller asks that again."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bridge.programs.calls import Call
from bridge.programs.memory import storage_of

_ALL = {torch.ops.aten.all.default, torch.ops.aten._is_all_true.default}


class Answered:
    """The answers of one run.

    Args:
        calls: those that are written down.
        tensors: those of the registers.
    """

    def __init__(self, calls: Sequence[Call], tensors: Sequence[torch.Tensor]) -> None:
        self._calls, self._tensors = calls, tensors
        self._answers: dict[tuple[int, bool], tuple[bool, int]] = {}

    def note(self, register: int, answer: bool) -> None:
        """The bool in a register was asked for."""
        self._answers[self._asked_of(register)] = answer, len(self._calls)

    def again(self, register: int) -> bool | None:
        """The answer, if the same was asked before of what nothing has changed since then."""
        asked = self._asked_of(register)
        if asked not in self._answers:
            return None
        answer, first = self._answers[asked]
        storage = storage_of(self._tensors[asked[0]])
        written = (number for call in self._calls[first:] for number in call.written)
        return None if any(storage_of(self._tensors[number]) == storage for number in written) else answer

    def _asked_of(self, register: int) -> tuple[int, bool]:
        """A register, and whether it is asked if all its elements are true; else what it holds."""
        for call in reversed(self._calls):
            if register in call.results:
                return (call.operands[0], True) if call.op in _ALL else (register, False)
        return register, False
