"""What a capture does, however it comes to its constants: whether it computes a table, or finds it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import torch

from bridge.programs.calls import Call, Register, no_modes
from bridge.programs.capture import Captured
from bridge.programs.constant_calls import constant_calls
from bridge.programs.listing import Listing, Output, live
from bridge.programs.text import data_of
from bridge.programs.values import copied, make

# Whether a tensor is an input, or the result of a call, with its position there; or a constant, with its data.
_Place = tuple[Any, ...]


def folding(captured: Captured) -> Callable[[], Any]:
    """Gives, when it is called, what is equal of two captures that make the same calls, forward and backward, of the
    same inputs and of equal constants."""
    given = [number for number in captured.cotangents if number is not None]
    wanted = [*captured.outputs, *captured.gradients]
    outputs = [Output([number], captured.spec(number)) for number in wanted if number is not None]
    calls, constants = [*captured.forward, *captured.backward], dict(captured.tape.constants)
    listing = Listing(captured.tape, [*captured.inputs, *given], calls, outputs, constants)
    absent = [number is None for number in (*wanted, *captured.cotangents)]

    def fold() -> Any:
        listing.calls = live(listing)
        return _folded(listing), absent, captured.no_gradient

    return fold


def _folded(listing: Listing) -> tuple[Any, ...]:
    constant = constant_calls(listing, math.inf)
    places: dict[int, _Place] = {number: ("input", i) for i, number in enumerate(listing.inputs)}
    with no_modes(), torch.no_grad():
        known = {number: copied(tensor.detach()) for number, tensor in listing.constants.items()}
        for i, call in enumerate(listing.calls):
            if i in constant:
                make(call, known)

    def place(number: int) -> _Place:
        if number not in places:
            places[number] = _data(known[number])
        return places[number]

    def argument(value: Any) -> Any:
        if isinstance(value, Register):
            return type(value), place(value.number)
        return [argument(item) for item in value] if isinstance(value, (list, tuple)) else (type(value), value)

    made: list[Any] = []
    for i, call in enumerate(listing.calls):
        if i not in constant:
            made.append((call.name, call.without_gradient, argument(call.arguments)))
            places.update(_made(call, len(made)))
    return made, [(output.spec, place(output.registers[0])) for output in listing.outputs]


def _made(call: Call, position: int) -> dict[int, _Place]:
    return {number: ("result", position, j) for j, number in enumerate(call.results) if number is not None}


def _data(tensor: torch.Tensor) -> _Place:
    digest = hashlib.sha256(data_of(tensor)).hexdigest()
    return "data", tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device.type, digest
