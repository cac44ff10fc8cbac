"""Integers that follow from others which a run is told: `x[begin[i] : begin[i] + 3]` asks for two, which lie three
apart whatever data says (data_sizes.py)."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bridge.programs.calls import DEFAULT, Call, Register, draws
from bridge.programs.data_sizes import Place
from bridge.programs.memory import storage_of
from bridge.programs.size_numbers import SizeNumber

_aten = torch.ops.aten
# What a call makes of a tensor `x` and a constant `n`: so many `x` and so many `n`.
_SUMS = {
    _aten.add.Tensor: (1, 1),
    _aten.add.Scalar: (1, 1),
    _aten.sub.Tensor: (1, -1),
    _aten.sub.Scalar: (1, -1),
    _aten.rsub.Scalar: (-1, 1),
    _aten.neg.default: (-1, 0),
}
_COMPARISONS = {
    _aten.eq.Scalar: operator.eq,
    _aten.ne.Scalar: operator.ne,
    _aten.lt.Scalar: operator.lt,
    _aten.le.Scalar: operator.le,
    _aten.gt.Scalar: operator.gt,
    _aten.ge.Scalar: operator.ge,
}


def _written(calls: Sequence[Call], tensors: Sequence[torch.Tensor]) -> set[Any]:
    """The memory that calls write to."""
    return {storage_of(tensors[number]) for call in calls for number in call.written}


def known_answer(
    register: int,
    calls: Sequence[Call],
    tensors: Sequence[torch.Tensor],
    places: Mapping[SizeNumber, Place],
    told: Mapping[SizeNumber, int],
) -> bool | None:
    """The bool in a tensor, if it says how such an integer compares with a constant; else None. See known_integer."""
    if not told:
        return None
    call = next((call for call in reversed(calls) if register in call.results), None)
    compare = None if call is None else _COMPARISONS.get(call.op)
    if call is None or compare is None or storage_of(tensors[register]) in _written(calls, tensors):
        return None
    operand, constant = call.arguments
    if not isinstance(operand, Register) or type(constant) not in (int, bool):
        return None
    known = known_integer(operand.number, calls, tensors, places, told)
    return None if known is None else bool(compare(known, constant))


def known_integer(
    register: int,
    calls: Sequence[Call],
    tensors: Sequence[torch.Tensor],
    places: Mapping[SizeNumber, Place],
    told: Mapping[SizeNumber, int],
) -> int | None:
    """The integer in a tensor, if it is one that the run is told, or its sum or difference with a constant; else None.

    Args:
        register: the tensor's.
        calls: those of the run until now.
        tensors: those of the registers.
        places, told: what has the sizes that the run is told, and these, by their numbers.
    """
    made = {number: call for call in calls for number in call.results if number is not None}
    written = _written(calls, tensors)

    def are_same(one: Any, other: Any) -> bool:
        if not isinstance(one, Register) or not isinstance(other, Register):
            if isinstance(one, list) and isinstance(other, list):
                return len(one) == len(other) and all(map(are_same, one, other))
            return type(one) is type(other) and not isinstance(one, torch.Tensor) and bool(one == other)
        if storage_of(tensors[one.number]) in written or storage_of(tensors[other.number]) in written:
            return False
        if one.number == other.number:
            return True
        first, second = made.get(one.number), made.get(other.number)
        return (
            first is not None
            and second is not None
            and first.op is second.op
            and not draws(first)
            and first.results.index(one.number) == second.results.index(other.number)
            and are_same(first.arguments, second.arguments)
        )

    last, sign, shift = register, 1, 0
    while True:
        for number, place in places.items():
            if place.dimension == "value" and number in told and are_same(Register(register), Register(place.register)):
                found = sign * told[number] + shift
                limits = torch.iinfo(tensors[last].dtype)
                return found if limits.min <= found <= limits.max else None  # it overflows
        call = made.get(register)
        signs = None if call is None else _SUMS.get(call.op)
        if call is None or signs is None or storage_of(tensors[register]) in written:
            return None
        operand, constant, alpha = [*call.arguments, 0, DEFAULT][:3]
        if not isinstance(operand, Register) or type(constant) is not int or alpha not in (1, DEFAULT):
            return None
        if tensors[operand.number].dtype is not tensors[register].dtype:
            return None
        register, sign, shift = operand.number, sign * signs[0], shift + sign * signs[1] * constant
