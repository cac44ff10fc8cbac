"""Questions that every random number answers alike: `torch.rand(()) < self.layerdrop`, where that is 0."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bridge.programs import python_draws
from bridge.programs.calls import DEFAULT, Call
from bridge.programs.memory import storage_of

_aten = torch.ops.aten
_COMPARED: dict[Any, Callable[[Any, Any], Any]] = {
    _aten.lt.Scalar: operator.lt,
    _aten.le.Scalar: operator.le,
    _aten.gt.Scalar: operator.gt,
    _aten.ge.Scalar: operator.ge,
}
_RAND = {_aten.rand.default, _aten.rand_like.default}
# Their results have some of the numbers of their argument.
_SAME_NUMBERS = {
    _aten.alias.default, _aten.detach.default, _aten.expand.default, _aten.select.int, _aten.squeeze.default,
    _aten.squeeze.dim, _aten.unsqueeze.default, _aten.view.default,
}  # fmt: skip
_UNIFORM = _aten.uniform_.default
_DTYPES: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}


def answer_of_all(register: int, calls: Sequence[Call], tensors: Sequence[torch.Tensor]) -> bool | None:
    """What a question is answered whatever is drawn; None if it is another question.

    Args:
        register: the bool that is asked for.
        calls: those that were made before.
        tensors: those of the registers.
    """
    position = _made(register, calls)
    if position is None or calls[position].op not in _COMPARED:
        return None
    number, bound = calls[position].arguments
    compare, kind = _COMPARED[calls[position].op], _DTYPES.get(tensors[number.number].dtype)
    if kind is None or not isinstance(bound, (int, float)):
        return None
    answers = {bool(compare(one, kind(bound))) for one in bounds(number.number, calls[:position], tensors)}
    return answers.pop() if len(answers) == 1 else None


def bounds(register: int, calls: Sequence[Call], tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """The least and the largest number that a register may have, in its dtype; nothing if they are not known."""
    drawn = _drawn(register, calls, tensors)
    kind = _DTYPES.get(tensors[register].dtype)
    return () if drawn is None or kind is None else _bounds(drawn, kind)


def _made(register: int, calls: Sequence[Call]) -> int | None:
    """The position of the last call that made, or wrote to, a register."""
    return next((i for i in reversed(range(len(calls))) if register in calls[i].results), None)


def _drawn(register: int, calls: Sequence[Call], tensors: Sequence[torch.Tensor]) -> Call | None:
    """The call whose numbers a register has, as it gave them."""
    position = _made(register, calls)
    while position is not None and _has_same_numbers(calls[position], tensors):
        register = calls[position].operands[0]
        position = _made(register, calls)
    if position is None:
        return None
    memory = storage_of(tensors[register])
    written = (storage_of(tensors[number]) for call in calls[position + 1 :] for number in call.written)
    return None if memory in written else calls[position]


def _has_same_numbers(call: Call, tensors: Sequence[torch.Tensor]) -> bool:
    if call.op is _aten._to_copy.default:
        return all(tensors[number].dtype is torch.float64 for number in call.results if number is not None)
    return call.op in _SAME_NUMBERS


def _bounds(call: Call, kind: Any) -> tuple[Any, ...]:
    """The least and the largest number that a call draws, of [0, 1) or [0, high); none if that is not known."""
    below_one = np.nextafter(kind(1), kind(0))
    if call.op in _RAND or (call.op is python_draws.DRAW and python_draws.is_below_one(call.arguments[0])):
        return kind(0), below_one
    if call.op is _UNIFORM:
        low, high = (n if given is DEFAULT else given for given, n in zip(call.arguments[1:3], (0.0, 1.0), strict=True))
        return (kind(0), below_one if high == 1 else kind(high)) if low == 0 else ()
    return ()
