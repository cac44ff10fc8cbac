"""Programs out of a captured run: forward, and backward with what it needs of forward as explicit tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from bridge.programs import no_parts
from bridge.programs.calls import Call, Refusal, Register, in_line
from bridge.programs.capture import Captured
from bridge.programs.listing import Listing, Output, constants, is_once, live, new_register, taken, used
from bridge.programs.memory import is_whole, storage_of
from bridge.programs.parts import parts, with_copies
from bridge.programs.passing import Passing, Source, memory_like, of_part
from bridge.programs.segments import segments
from bridge.programs.tables import is_table
from bridge.programs.tape import Tape
from bridge.programs.views import lay_out_constants, pass_unmarked

# Below autograd these give their argument back.
_ALIASES = {torch.ops.aten.detach.default, torch.ops.aten.lift_fresh.default, torch.ops.aten.alias.default}
# They change the sizes of a tensor that has been given to others: then an alias is not its argument.
_RESHAPES = {"t_", "transpose_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_", "as_strided_", "set_", "resize_"}


class Given(NamedTuple):
    """What a program after forward is given, besides what passes from forward: the tensors in it."""

    source: Source
    output: Output
    registers: list[int]


@dataclass
class Pair:
    """A forward program and its gradient.

    Attributes:
        results: for each of the function's results the program that gives it, 0 for forward, and which output it is.
            Forward's other outputs are for the other programs.
        later: the programs that go on after forward, where it has no gradient, for the memory that one would need
            (segments.py).
        later_sources: what each of these takes.
        backward: its gradient's programs; none if nothing has a gradient. They are several for the memory that they
            need (segments.py). The last may give gradients of arguments only, and need not run where nobody asks for
            them (parts.py).
        sources: what each of these takes.
        gradients: for each input the program and its output that is its gradient; None if it is zero.
        written: the positions of the inputs that forward writes to.
    """

    forward: Listing
    results: list[tuple[int, int]]
    later: list[Listing]
    later_sources: list[list[Source]]
    backward: list[Listing]
    sources: list[list[Source]]
    gradients: list[tuple[int, int] | None]
    written: list[int]


def split(captured: Captured, shapes_of: Sequence[int], in_one: bool = False) -> Pair:
    """The programs of a captured run.

    Args:
        shapes_of: the positions of inputs that backward takes in any case. With these forward is one program too.
        in_one: whether forward is one program, whatever memory it needs.
    """
    _resolve_aliases(captured)
    lay_out_constants(captured)
    written_constants = _copy_written_constants(captured)
    has_gradient = any(number is not None for number in captured.gradients)
    is_one = in_one or shapes_of or has_gradient
    calls = [captured.forward] if is_one else segments(captured, captured.forward, captured.outputs, with_backward=True)
    (forward, *later), results = _programs(captured, calls, captured.outputs)
    forward.inputs = captured.inputs
    passing = Passing(captured, forward, written_constants, shapes_of)
    between = _between(later)
    later_sources = [_complete(program, passing.again(), between) for program in later]
    backward, sources, gradients = _backward(captured, forward, passing, not shapes_of)
    forward.calls = live(forward)
    forward.constants = constants(forward)
    return Pair(forward, results, later, later_sources, backward, sources, gradients, captured.written)


def _programs(
    captured: Captured, calls: Sequence[list[Call]], wanted: Sequence[int]
) -> tuple[list[Listing], list[tuple[int, int]]]:
    """Programs of these calls. They give the wanted registers: each by a program, and as an output of that."""
    made = _part_of(calls)
    outputs: list[list[Output]] = [[] for _ in calls]
    places: list[tuple[int, int]] = []
    for number in wanted:
        part = made.get(number, 0)
        places.append((part, len(outputs[part])))
        outputs[part].append(Output([number], captured.spec(number)))
    return [Listing(captured.tape, [], *one) for one in zip(calls, outputs, strict=True)], places


def _resolve_aliases(captured: Captured) -> None:
    """Put arguments in the place of their aliases."""
    calls = [*captured.forward, *captured.backward]
    if any(call.op._schema.name.removeprefix("aten::") in _RESHAPES for call in calls):
        return
    same: dict[int, int] = {}

    def original(value: Any) -> Any:
        if isinstance(value, Register):
            return type(value)(same.get(value.number, value.number))
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

    Raises Refusal if a constant is not the program's own, and its next run would have to see what was written.
    """
    tape = captured.tape
    constant = {storage_of(tape.tensors[number]): number for number in tape.constants}
    touched = {memory for call in captured.forward for memory in _written_by(tape, call)}
    copied = {storage: number for storage, number in constant.items() if storage in touched}
    for number in tape.constants:
        memory = storage_of(tape.tensors[number])
        if memory in copied and number not in tape.fresh and not is_table(captured, memory):
            calls = (call for call in captured.forward if memory in _written_by(tape, call))
            raise Refusal(no_parts.words(tape.constants[number]) + in_line(next(calls).where))
    for number in copied.values():
        with tape.fake_mode:
            source = new_register(tape, torch.clone(tape.tensors[number]))  # its memory is another one
        tape.constants[source] = tape.constants.pop(number)
        clone = torch.ops.aten.clone.default
        captured.forward.insert(0, Call(clone, [Register(source), torch.preserve_format], [number]))
    return set(copied)


def _written_by(tape: Tape, call: Call) -> set[int]:
    return {storage_of(tape.tensors[number]) for number in call.written}


def _backward(
    captured: Captured, forward: Listing, passing: Passing, is_of_one_size: bool
) -> tuple[list[Listing], list[list[Source]], list[tuple[int, int] | None]]:
    """The gradient's programs, what they take, and which of their outputs is which gradient. Appends what they need to
    forward's outputs."""
    wanted = [number for number in captured.gradients if number is not None]
    if not wanted:
        return [], [], [None for _ in captured.gradients]
    needed, rest = parts(captured) if is_of_one_size else (captured.backward, [])
    calls = segments(captured, needed, wanted) if is_of_one_size else [needed]
    if rest and is_once(forward):
        copies, rest = with_copies(captured, rest)
        calls[0] = [*copies, *calls[0]]
    calls += [rest] if rest else []
    programs, places = _programs(captured, calls, wanted)
    left = iter(places)
    gradients = [None if number is None else next(left) for number in captured.gradients]
    given = [
        Given(Source("cotangent", i), forward.outputs[i], [number])
        for i, number in enumerate(captured.cotangents)
        if number is not None
    ]
    given += _between(programs)
    result = forward.outputs[0]
    sources: list[list[Source]] = []
    for program in programs:
        own = passing.again()
        sources.append(_complete(program, own, given))
        # What draws or writes, or reads what forward writes to, takes a result of forward's, to run after it.
        follows = is_once(program) or any(Source("input", position) in own.sources for position in captured.written)
        if follows and not any(source.kind == "output" for source in own.sources):
            views = own.take(program, Source("output", 0), result, result.registers[:1])
            program.calls = views + program.calls
    return programs, sources, gradients


def _part_of(calls: Sequence[Sequence[Call]]) -> dict[int | None, int]:
    """For each register the first of these that makes it."""
    found: dict[int | None, int] = {}
    for part, own in enumerate(calls):
        for call in own:
            for number in call.results:
                found.setdefault(number, part)
    return found


def _between(programs: Sequence[Listing]) -> list[Given]:
    """What the programs of backward, or those after forward, take of earlier ones, which are made to give it."""
    made = _part_of([program.calls for program in programs])
    found: dict[Any, Given] = {}
    for part, program in enumerate(programs):
        for i, output in enumerate(program.outputs):
            tensor = program.tape.tensors[output.registers[0]]
            if is_whole(tensor):
                found.setdefault((part, storage_of(tensor), tensor.dtype), Given(Source(of_part(part), i), output, []))
    for later, program in enumerate(programs):
        own = {number for call in program.calls for number in call.results}
        for number in used(program):
            part = made.get(number, later)
            if part == later or number in own:
                continue
            tensor = program.tape.tensors[number]
            key = part, storage_of(tensor), tensor.dtype
            if key not in found:
                output = memory_like(tensor)
                found[key] = Given(Source(of_part(part), len(programs[part].outputs)), output, output.registers)
                programs[part].outputs.append(output)
            if number not in found[key].registers:
                found[key].registers.append(number)
    return list(found.values())


def _complete(program: Listing, passing: Passing, given: Sequence[Given]) -> list[Source]:
    """Have a program that comes after forward begin with what it takes. Gives where that comes from."""
    program.calls = live(program)
    known = {number for one in given for number in one.registers}
    for number in taken(program):
        if number not in known:
            pass_unmarked(number, passing.forward, program)
    wanted = taken(program)
    for number in wanted:
        if number not in known:
            passing.add(number, program.calls)
    views = passing.views(program)
    for one in given:
        registers = [number for number in one.registers if number in wanted]
        if registers:
            views += passing.take(program, one.source, one.output, registers)
    program.calls = views + program.calls
    program.constants = constants(program)
    return passing.sources
