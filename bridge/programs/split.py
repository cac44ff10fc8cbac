"""Two programs out of a captured run: forward, and backward with what it needs of forward as explicit tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bridge.programs.calls import Call, Refusal, Register
from bridge.programs.capture import Captured
from bridge.programs.listing import Listing, Output, constants, is_once, live, new_register, used
from bridge.programs.memory import storage_of
from bridge.programs.passing import Passing, Source

# Below autograd these give their argument back.
_ALIASES = {torch.ops.aten.detach.default, torch.ops.aten.lift_fresh.default, torch.ops.aten.alias.default}
# They change the sizes of a tensor that has been given to others: then an alias is not its argument.
_RESHAPES = {"t_", "transpose_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_", "as_strided_", "set_", "resize_"}


@dataclass
class Pair:
    """A forward program and its gradient.

    Attributes:
        results: how many of forward's outputs are the function's; the others are for backward.
        backward: None if nothing has a gradient.
        sources: what backward takes.
        gradients: for each input which of backward's outputs is its gradient; None if it is zero.
        written: the positions of the inputs that forward writes to.
    """

    forward: Listing
    results: int
    backward: Listing | None
    sources: list[Source]
    gradients: list[int | None]
    written: list[int]


def split(captured: Captured, shapes_of: Sequence[int]) -> Pair:
    """The programs of a captured run. Backward takes the inputs at the positions `shapes_of` too."""
    _resolve_aliases(captured)
    tape = captured.tape
    written_constants = _copy_written_constants(captured)
    forward = Listing(tape, captured.inputs, captured.forward, _plain(captured, captured.outputs))
    results = len(forward.outputs)
    passing = Passing(captured, forward, written_constants, shapes_of)
    backward, sources, gradients = _backward(captured, forward, passing)
    forward.calls = live(forward)
    forward.constants = constants(forward)
    return Pair(forward, results, backward, sources, gradients, captured.written)


def _plain(captured: Captured, of: Iterable[int]) -> list[Output]:
    return [Output([register], captured.spec(register)) for register in of]


def _resolve_aliases(captured: Captured) -> None:
    """Put arguments in the place of their aliases."""
    calls = [*captured.forward, *captured.backward]
    if any(call.op._schema.name.removeprefix("aten::") in _RESHAPES for call in calls):
        return
    same: dict[int, int] = {}

    def original(value: Any) -> Any:
        if isinstance(value, Register):
            return Register(same.get(value.number, value.number))
        return [original(item) for item in value] if isinstance(value, list) else value

    kept = {id(call) for call in calls if call.op not in _ALIASES}
    for call in calls:
        call.arguments = [original(value) for value in call.arguments]
        call.written = [same.get(number, number) for number in call.written]
        if id(call) not in kept:
            assert call.results[0] is not None
            same[call.results[0]] = call.operands[0]
    captured.forward = [call for call in captured.forward if id(call) in kept]
    captured.backward = [call for call in captured.backward if id(call) in kept]
    captured.outputs = [same.get(number, number) for number in captured.outputs]
    captured.gradients = [number if number is None else same.get(number, number) for number in captured.gradients]


def _copy_written_constants(captured: Captured) -> set[int]:
    """Have forward write to copies of its constants. Returns the memory of these.

    Raises Refusal if a constant is not the program's own: its next run would have to see what was written.
    """
    tape = captured.tape
    constant = {storage_of(tape.tensors[number]): number for number in tape.constants}
    touched = {storage_of(tape.tensors[number]) for call in captured.forward for number in call.written}
    copied = {storage: number for storage, number in constant.items() if storage in touched}
    for number in copied.values():
        if number not in tape.fresh:
            shape = list(tape.tensors[number].shape)
            raise Refusal(
                f"it writes to a tensor of shape {shape} that is neither a parameter nor a persistent buffer, which a "
                "graph does not keep: register it as a buffer"
            )
        source = new_register(tape, tape.tensors[number])
        tape.constants[source] = tape.constants.pop(number)
        clone = torch.ops.aten.clone.default
        captured.forward.insert(0, Call(clone, [Register(source), torch.preserve_format], [number]))
    return set(copied)


def _backward(
    captured: Captured, forward: Listing, passing: Passing
) -> tuple[Listing | None, list[Source], list[int | None]]:
    """The gradient's program, what it takes, and which of its outputs is which gradient. Appends what it needs to
    forward's outputs."""
    gradients: list[int | None] = []
    outputs: list[Output] = []
    for number in captured.gradients:
        gradients.append(None if number is None else len(outputs))
        outputs += [] if number is None else _plain(captured, [number])
    if not outputs:
        return None, [], gradients
    backward = Listing(captured.tape, [], captured.backward, outputs)
    backward.calls = live(backward)
    given = {number: Source("cotangent", i) for i, number in enumerate(captured.cotangents) if number is not None}
    for number in _taken(backward):
        if number not in given:
            passing.add(number)
    views = passing.views(backward)
    wanted = set(used(backward))
    for number, source in given.items():
        if number in wanted:
            views += passing.take(backward, source, forward.outputs[source.position], [number])
    if is_once(backward) and not any(source.kind == "output" for source in passing.sources):
        first = forward.outputs[0]  # to run after forward
        views += passing.take(backward, Source("output", 0), first, first.registers[:1])
    backward.calls = views + backward.calls
    backward.constants = constants(backward)
    return backward, passing.sources, gradients


def _taken(listing: Listing) -> list[int]:
    """The registers that a program uses before a call of its own makes them, or never makes. What a call writes to is
    among its results too."""
    made: set[int] = set()
    found: dict[int, None] = {}
    for call in listing.calls:
        found.update((number, None) for number in call.operands if number not in made)
        made.update(number for number in call.results if number is not None)
    found.update((number, None) for output in listing.outputs for number in output.registers if number not in made)
    return list(found)
