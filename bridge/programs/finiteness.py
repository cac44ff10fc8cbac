"""Questions whether all numbers of a tensor are finite, as `if not torch.isfinite(x).all(): x = x.clamp(-big, big)`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from bridge.programs.calls import Call, no_modes
from bridge.programs.values import make

_aten = torch.ops.aten
# What PyTorch and its users write such questions with, between the tensor and the bool.
_OPS = {
    _aten.abs.default, _aten.all.default, _aten.all.dim, _aten.all.dims, _aten.any.default, _aten.any.dim,
    _aten.any.dims, _aten.bitwise_and.Tensor, _aten.bitwise_not.default, _aten.bitwise_or.Tensor, _aten.detach.default,
    _aten.eq.Scalar, _aten.eq.Tensor, _aten.isinf.default, _aten.isnan.default, _aten.isneginf.default,
    _aten.isposinf.default, _aten.logical_and.default, _aten.logical_not.default, _aten.logical_or.default,
    _aten.mul.Tensor, _aten.ne.Scalar, _aten.ne.Tensor, _aten.sum.default, _aten.view.default,
}  # fmt: skip
_FINITE = 0.0, 1.0, None  # None for random ones
_NOT_FINITE = math.nan, math.inf, -math.inf


def answer_of_finite(register: int, calls: Sequence[Call], tensors: Sequence[torch.Tensor]) -> bool | None:
    """What a question is answered where all numbers are finite; None if it asks for something else.

    Args:
        register: the bool that is asked for.
        calls: those that were made before.
        tensors: those of the registers.
    """
    needed, behind = {register}, list[Call]()
    for call in reversed(calls):
        if call.op in _OPS and not call.written and not needed.isdisjoint(call.results):
            behind.append(call)
            needed.update(call.operands)
    asked = sorted(needed.difference(*(call.results for call in behind)))
    if not behind or not all(tensors[number].dtype.is_floating_point for number in asked):
        return None
    generator = torch.Generator().manual_seed(0)  # PyTorch's own draws for the program

    def answer(filled_with: float | None) -> bool:
        known = {}
        for number in asked:
            like = torch.empty(tensors[number].shape, dtype=tensors[number].dtype)
            known[number] = like.normal_(generator=generator) if filled_with is None else like.fill_(filled_with)
        for call in reversed(behind):
            make(call, known)
        return bool(known[register])

    try:
        with no_modes(), torch.no_grad():
            of_finite = {answer(number) for number in _FINITE}
            of_others = {answer(number) for number in _NOT_FINITE}
    except RuntimeError:  # PyTorch has no such kernel on a CPU, as for 8 bits
        return None
    return of_finite.pop() if len(of_finite) == 1 and not of_others <= of_finite else None
