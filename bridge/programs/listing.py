"""A program as a list of calls, by the registers of the tape: what it takes, gives and frees."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from bridge.programs.calls import Call, draws
from bridge.programs.capture import Spec
from bridge.programs.memory import is_whole, storage_of
from bridge.programs.tape import Tape

# Of what a program takes for true, and of what a factorization says of itself: they give nothing.
CHECKS = {
    torch.ops.aten._assert_async.msg,
    torch.ops.aten._assert_async.default,
    torch.ops.aten._linalg_check_errors.default,
}


@dataclass
class Output:
    """What a program gives: a tensor, row by row, or memory as one row, with the tensors in it."""

    registers: list[int]
    spec: Spec
    is_memory: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """What MindSpore sees: of a primitive that infers in C++ it takes a result without dimensions for a number."""
        return self.spec.shape or (1,)


@dataclass
class Listing:
    """One program, by the registers of the tape."""

    tape: Tape
    inputs: list[int]
    calls: list[Call]
    outputs: list[Output]
    constants: dict[int, torch.Tensor] = field(default_factory=dict)


def new_register(tape: Tape, like: torch.Tensor) -> int:
    """A register that no call has made."""
    tape.tensors.append(like)
    return len(tape.tensors) - 1


def live(listing: Listing) -> list[Call]:
    """The calls whose results are used, that write, that draw, or that check."""
    needed = {number for output in listing.outputs for number in output.registers}
    found = []
    for call in reversed(listing.calls):
        if call.written or draws(call) or call.op in CHECKS or not needed.isdisjoint(call.results):
            found.append(call)
            needed.update(call.operands)
    return found[::-1]


def taken(listing: Listing) -> list[int]:
    """The registers that a program uses before a call of its own makes them, or never makes. What a call writes to is
    among its results too."""
    made: set[int] = set()
    found: dict[int, None] = {}
    for call in listing.calls:
        found.update((number, None) for number in call.operands if number not in made)
        made.update(number for number in call.results if number is not None)
    found.update((number, None) for output in listing.outputs for number in output.registers if number not in made)
    return list(found)


def is_once(listing: Listing) -> bool:
    """Whether a program draws, or writes to what it has not made: it runs once, and in order."""
    own = {number for call in listing.calls for number in call.results} - set(listing.inputs)
    return any(draws(call) or not own.issuperset(call.written) for call in listing.calls)


def constants(listing: Listing) -> dict[int, torch.Tensor]:
    """Those that the program uses, and does not make of others."""
    wanted = set(taken(listing))
    return {number: tensor for number, tensor in listing.tape.constants.items() if number in wanted}


def used(listing: Listing) -> list[int]:
    """The registers that calls take and that are given, in order."""
    found = [number for call in listing.calls for number in call.operands]
    found += [number for output in listing.outputs for number in output.registers]
    return list(dict.fromkeys(found))


def origins(listing: Listing) -> dict[int, tuple[int, int]]:
    """For outputs that are the whole of some memory: the call, and its result, that allocate it."""
    tensors = listing.tape.tensors
    seen = {storage_of(tensors[number]) for number in (*listing.inputs, *listing.constants)}
    allocated: dict[int, tuple[int, int]] = {}
    for i, call in enumerate(listing.calls):
        for j, number in enumerate(call.results):
            if number is not None and storage_of(tensors[number]) not in seen:
                seen.add(storage_of(tensors[number]))
                allocated[storage_of(tensors[number])] = (i, j)
    found: dict[int, tuple[int, int]] = {}
    for i, output in enumerate(listing.outputs):
        tensor = tensors[output.registers[0]]
        origin = allocated.pop(storage_of(tensor), None) if output.is_memory or is_whole(tensor) else None
        if origin is not None:
            found[i] = origin
    return found


def last_uses(listing: Listing, constant: set[int]) -> list[list[int]]:
    """For each call the registers that nobody uses after it. Calls at the positions in `constant` are made before all
    others."""
    given = {number for output in listing.outputs for number in output.registers}
    by_others = [_uses(call) for i, call in enumerate(listing.calls) if i not in constant]
    kept, kept_of_constant = set(given), given.union(*by_others)
    found: list[list[int]] = []
    for i, call in reversed(list(enumerate(listing.calls))):
        known = kept_of_constant if i in constant else kept
        found.append([number for number in _uses(call) if number not in known])
        known.update(_uses(call))
    return found[::-1]


def _uses(call: Call) -> dict[int, None]:
    """The registers that a call takes and gives, in order."""
    return dict.fromkeys([*call.operands, *(number for number in call.results if number is not None)])
