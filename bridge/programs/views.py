"""Tensors that a program makes again as views of memory: constants that are not the whole of their memory, what is
conjugate or negative by a mark of the tensor, which memory does not have, and views that another program has made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from bridge.programs.calls import Call, Register, no_modes
from bridge.programs.capture import Captured
from bridge.programs.listing import Listing, new_register
from bridge.programs.memory import is_whole, memory_of, storage_of
from bridge.programs.tape import Tape

_MARKS = (torch.Tensor.is_neg, torch.ops.aten._neg_view.default), (torch.Tensor.is_conj, torch.ops.aten._conj.default)


def view(tape: Tape, source: int, number: int) -> Call:
    """The call that makes a register without marks, of another one with the same memory."""
    tensor = tape.tensors[number]
    layout = [list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]
    return Call(torch.ops.aten.as_strided.default, [Register(source), *layout], [number])


def is_view(tape: Tape, call: Call) -> bool:
    """Whether a call gives nothing but memory that it takes."""

    def memory(numbers: Iterable[int | None]) -> set[int]:
        return {storage_of(tape.tensors[number]) for number in numbers if number is not None}

    return not call.written and memory(call.results) <= memory(call.operands)


def with_views(tape: Tape, before: Sequence[Call], calls: Sequence[Call]) -> list[Call]:
    """Calls of another program, with the views that it takes of those before: they cost nothing, no memory passes."""
    needed = {number for call in calls for number in call.operands}
    views: list[Call] = []
    for call in reversed(before):
        if is_view(tape, call) and not needed.isdisjoint(call.results):
            views.insert(0, call)
            needed.update(call.operands)
    return [*views, *calls]


def pass_unmarked(number: int, forward: Listing, backward: Listing) -> None:
    """Have backward take a register of forward's without the marks that it has, and set these itself."""
    _, there, back = _marks(forward.tape, number)
    forward.calls += there
    backward.calls = back + backward.calls


def _marks(tape: Tape, number: int) -> tuple[int, list[Call], list[Call]]:
    """A register without marks, and the calls from a marked one to it and back."""
    there: list[Call] = []
    back: list[Call] = []
    for is_marked, op in _MARKS:
        if is_marked(tape.tensors[number]):
            with no_modes(), tape.fake_mode:
                plain = new_register(tape, op(tape.tensors[number]))
            there.append(Call(op, [Register(number)], [plain]))
            back.insert(0, Call(op, [Register(plain)], [number]))
            number = plain
    return number, there, back


def lay_out_constants(captured: Captured) -> None:
    """Have forward make the constants that are not the whole of their memory, out of that memory."""
    tape = captured.tape
    alike: dict[tuple[int, torch.dtype], list[int]] = {}
    for number in tape.constants:
        alike.setdefault((storage_of(tape.tensors[number]), tape.tensors[number].dtype), []).append(number)
    for numbers in alike.values():
        if len(numbers) > 1 or not is_whole(tape.tensors[numbers[0]]):
            captured.forward[:0] = _out_of_memory(tape, numbers)


def _out_of_memory(tape: Tape, numbers: list[int]) -> list[Call]:
    """The calls that make constants out of the memory that they share, which is a constant now."""
    with no_modes(), tape.fake_mode:
        memory = new_register(tape, memory_of(tape.tensors[numbers[0]]))
    tape.fresh.add(memory)
    with no_modes():
        tape.constants[memory] = memory_of(tape.constants[numbers[0]])
    calls: list[Call] = []
    for number in numbers:
        plain, _, back = _marks(tape, number)
        calls += [view(tape, memory, plain), *back]
    return calls
