"""Questions whether all numbers of a tensor are finite, as `if not torch.isfinite(x).all(): x = x.clamp(-big, big)`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from bridge.programs.calls import DEFAULT, Call, Register, no_modes, results_of

_aten = torch.ops.aten
# What PyTorch and its users write such questions with, between the tensor and the bool.
_OPS = {
    _aten.abs.default, _aten.all.default, _aten.all.dim, _aten.all.dims, _aten.any.default, _aten.any.dim,
    _aten.any.dims, _aten.bitwise_and.Tensor, _aten.bitwise_not.default, _aten.bitwise_or.Tensor, _aten.detach.default,
    _aten.eq.Scalar, _aten.eq.Tensor, _aten.isinf.default, _aten.isnan.default, _aten.isneginf.default,
    _aten.isposinf.default, _aten.logical_and.default, _aten.logical_not.default, _aten.logical_or.default,
    _aten.mul.Tensor, _aten.ne.Scalar, _aten.ne.Tensor, _aten.sum.default, _aten.view.default,
}  # fmt: skip
_FINITE = 0.0, 1.0, -3.5, 1e4
_NOT_FINITE = math.nan, math.inf, -math.inf


def answer_of_finite(register: int, calls: Sequence[Call], tensors: Sequence[torch.Tensor]) -> bool | None:
    """What a question is answered where all numbers are finite; None if it asks for something else.

    Args:
        register: the bool that is asked for.
        calls: those that were made before.
        tensors: those of the registers.
    """
    made = {number: call for call in calls for number in call.results if number is not None}
    needed, behind = [register], list[Call]()
    asked: set[int] = set()
    while needed:
        number = needed.pop()
        call = made.get(number)
        if call is not None and call.op in _OPS and not call.written:
            if all(call is not other for other in behind):
                behind.append(call)
                needed += call.operands
        elif tensors[number].dtype.is_floating_point:
            asked.add(number)
        else:
            return None
    if not asked:
        return None
    order = sorted(behind, key=lambda one: next(i for i, call in enumerate(calls) if call is one))

    def answer(number: float) -> bool:
        known = {one: torch.full(tensors[one].shape, number, dtype=tensors[one].dtype) for one in asked}
        for call in order:
            _make(call, known)
        return bool(known[register])

    with no_modes(), torch.no_grad():
        of_finite = {answer(number) for number in _FINITE}
        of_others = {answer(number) for number in _NOT_FINITE}
    return of_finite.pop() if len(of_finite) == 1 and not of_others <= of_finite else None


def _make(call: Call, known: dict[int, torch.Tensor]) -> None:
    def real(value: Any) -> Any:
        return known[value.number] if isinstance(value, Register) else value

    given = [(a, real(v)) for a, v in zip(call.op._schema.arguments, call.arguments, strict=True) if v is not DEFAULT]
    results = call.op(
        *(value for a, value in given if not a.kwarg_only), **{a.name: value for a, value in given if a.kwarg_only}
    )
    for result, tensor in zip(call.results, results_of(call.op, results), strict=True):
        if result is not None and tensor is not None:
            known[result] = tensor
