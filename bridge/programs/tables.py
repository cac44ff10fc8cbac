"""Tables that a function writes to, and each call would write again: `self.cache[:n] = positions`.

A graph computes such a table in each run, in memory of its own. The tensor stays as it was.
"""

from __future__ import annotations

import torch

from bridge.programs.calls import Call, draws
from bridge.programs.capture import Captured
from bridge.programs.memory import storage_of

_ATEN = torch.ops.aten
# They put numbers where others were, whatever those are.
_PUT = {
    _ATEN.copy_.default, _ATEN.fill_.Scalar, _ATEN.fill_.Tensor, _ATEN.zero_.default, _ATEN.index_copy_.default,
    _ATEN.index_put_.default, _ATEN._index_put_impl_.default,
}  # fmt: skip
_ACCUMULATE = "accumulate"


def is_table(captured: Captured, memory: int) -> bool:
    """Whether some memory that the function has found is written to, with what follows from constants and frozen
    parameters, and not read before."""
    tape, calls = captured.tape, captured.forward
    writing = [i for i, call in enumerate(calls) if memory in _memory(captured, call.written)]
    if not writing:
        return False
    for i, call in enumerate(calls[: writing[-1] + 1]):
        if i in writing:
            if call.op not in _PUT or _accumulates(call) or not _is_constant(captured, i, memory):
                return False
        elif i < writing[0] and memory in _memory(captured, call.operands) - _memory(captured, _results(call)):
            return False  # it is read, and no view of it made
    return memory not in {storage_of(tape.tensors[number]) for number in captured.inputs}


def _is_constant(captured: Captured, position: int, memory: int) -> bool:
    """Whether what a call writes is the same in each run."""
    tape, call = captured.tape, captured.forward[position]
    needed = {number for number in call.operands if number not in call.written}
    made: set[int] = set()
    for before in reversed(captured.forward[:position]):
        if needed.isdisjoint((*before.results, *before.written)):
            continue
        if draws(before):
            return False
        made.update(number for number in before.results if number is not None)
        needed.update(before.operands)
    known = made | tape.constants.keys() | captured.frozen
    changed = {memory for one in captured.forward for memory in _memory(captured, one.written)}
    return needed <= known and changed.isdisjoint(_memory(captured, needed))


def _results(call: Call) -> list[int]:
    return [number for number in call.results if number is not None]


def _accumulates(call: Call) -> bool:
    given = {argument.name: value for argument, value in zip(call.op._schema.arguments, call.arguments, strict=True)}
    return given.get(_ACCUMULATE) is True


def _memory(captured: Captured, registers: list[int] | set[int]) -> set[int]:
    return {storage_of(captured.tape.tensors[number]) for number in registers}
