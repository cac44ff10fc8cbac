"""What a capture does, however it comes to its constants: whether it computes a table, or finds it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from bridge.programs.calls import Call, Register, no_modes
from bridge.programs.capture import Captured
from bridge.programs.constant_calls import constant_calls
from bridge.programs.listing import CHECKS, Listing, Output, live
from bridge.programs.values import copied, make

# Whether a tensor is an input, or the result of a call, with its position there; or a constant, with its data.
_Place = tuple[Any, ...]


def folding(captured: Captured, frozen: dict[int, torch.Tensor]) -> Callable[[], Any]:
    """Gives, when it is called, what is equal of two captures that make the same calls, forward and backward, of the
    same inputs and of equal constants.

    Args:
        frozen: the registers of inputs that have the same data in each call, with their tensors.
    """
    given = [number for number in captured.cotangents if number is not None]
    wanted = [*captured.outputs, *captured.gradients]
    outputs = [Output([number], captured.spec(number)) for number in wanted if number is not None]
    calls, constants = [*captured.forward, *captured.backward], dict(captured.tape.constants)
    backward = {id(call) for call in captured.backward}
    listing = Listing(captured.tape, [*captured.inputs, *given], calls, outputs, constants)
    absent = [number is None for number in (*wanted, *captured.cotangents)]

    def fold() -> Any:
        listing.calls = live(listing)
        return _folded(listing, backward, frozen), absent, captured.no_gradient

    return fold


def digest(folded: Any) -> str:
    """What tells from others what a capture does, in other processes too.

    Args:
        folded: what `folding` gives.
    """
    return hashlib.sha256(repr(folded).encode()).hexdigest()


def _folded(listing: Listing, backward: set[int], frozen: dict[int, torch.Tensor]) -> tuple[Any, ...]:
    """Of a program, with the ids of those of its calls that are not forward's."""
    varying = [number for number in listing.inputs if number not in frozen]
    constant = constant_calls(replace(listing, inputs=varying), math.inf)
    places: dict[int, _Place] = {number: ("input", i) for i, number in enumerate(listing.inputs)}
    with no_modes(), torch.no_grad():
        known = {number: copied(tensor.detach()) for number, tensor in listing.constants.items()}
        known |= {number: tensor.detach() for number, tensor in frozen.items()}
        for i, call in enumerate(listing.calls):
            if i in constant:
                make(call, known)

    def place(number: int) -> _Place:
        if number not in places:
            places[number] = (_Data(known[number]),)
        return places[number]

    def argument(value: Any) -> Any:
        if isinstance(value, Register):
            return type(value), place(value.number)
        if isinstance(value, (list, tuple)):
            return [argument(item) for item in value]
        return type(value), repr(value)  # which tells -0.0 from 0.0, and has NaN be NaN

    made: list[Any] = []
    for i, call in enumerate(listing.calls):
        if i not in constant and not (call.op in CHECKS and known.keys() >= {*call.operands}):
            is_check = call.op in CHECKS  # whose words may have an object's address in them
            arguments = [value for value in call.arguments if not (is_check and isinstance(value, str))]
            made.append((call.name, id(call) in backward, call.without_gradient, argument(arguments)))
            places.update(_made(call, len(made)))
    return made, [(output.spec, place(output.registers[0])) for output in listing.outputs]


def _made(call: Call, position: int) -> dict[int, _Place]:
    return {number: ("result", position, j) for j, number in enumerate(call.results) if number is not None}


class _Data:
    """A constant, which is equal to one of the same layout with the same bits."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Data):
            return NotImplemented
        one, two = self._tensor, other._tensor
        return _layout(one) == _layout(two) and torch.equal(_bits(one), _bits(two))

    def __repr__(self) -> str:
        bits = hashlib.sha256(_bits(self._tensor).numpy(force=True).data).hexdigest()
        return f"{_layout(self._tensor)} {bits}"


def _layout(tensor: torch.Tensor) -> Any:
    steps = [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    return tensor.dtype, tensor.device, tensor.shape, steps, tensor.is_conj(), tensor.is_neg()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
