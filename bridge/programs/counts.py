"""The program that counts: it makes the calls of a function that decide sizes (data_sizes.py), and gives the sizes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import torch

from bridge.programs.calls import DEFAULT, Call, Refusal, Register
from bridge.programs.capture import Captured, in_line
from bridge.programs.data_sizes import STAND_INS_OF_SIZES, Place, Sizes
from bridge.programs.listing import Listing, is_once, new_register
from bridge.programs.memory import storage_of
from bridge.programs.split import split
from bridge.programs.text import text

_REFUSAL = "a size depends on data, and follows from {}, which a graph does not know: PyNative mode does"


@dataclass
class Count:
    """The program.

    Attributes:
        run: what it is a part of.
        numbers: those of the sizes that it gives.
        listing: the program.
        positions: those of its inputs among the run's.
    """

    run: Captured
    numbers: list[int]
    listing: Listing
    positions: list[int]


def count(captured_with: Callable[[Sizes], Captured], known: dict[int, int], needed: Collection[int]) -> Count:
    """The program that gives sizes which follow from no size but the known.

    Args:
        captured_with: captures the function.
        known: sizes that the program is told, by their numbers.
        needed: the positions of inputs that it takes in any case.

    Raises:
        Refusal: there is no such size.
        Exception: what the function raises, whatever the other sizes are taken to be.
    """
    errors: list[Exception] = []
    try:
        for pair in STAND_INS_OF_SIZES:
            try:
                return _count(lambda others: captured_with(Sizes(known, others)), pair, known, needed)
            except Exception as error:
                errors.append(error)
        raise errors[0]
    finally:
        errors.clear()  # this frame, which they hold, would keep them


def _count(
    captured_for: Callable[[int], Captured], pair: Sequence[int], known: Collection[int], needed: Collection[int]
) -> Count:
    """That program, out of two runs in which the other sizes are unlike."""

    def of(wanted: Callable[[int], bool]) -> list[Count]:
        runs = [captured_for(others) for others in pair]
        if len({len(run.tape.data_sizes.places) for run in runs}) > 1:
            raise Refusal(f"how many sizes depend on data follows from a size{_REFUSAL.partition('{}')[2]}")
        first, second = (_independent(run, known) for run in runs)
        numbers = [number for number in first if number in second and wanted(number)]
        return [_program(run, numbers, needed) for run in runs]

    found = of(lambda number: True)
    if not _are_equal(found):  # what Python computes with a size is in the program of another one
        fixed = {number for number in found[0].numbers if _are_equal(of(functools.partial(operator.eq, number)))}
        found = of(fixed.__contains__)
    if not found[0].numbers or not _are_equal(found):
        sizes = found[0].run.tape.data_sizes.places
        line = next((place.line for number, place in enumerate(sizes) if number not in known), None)
        raise Refusal(_REFUSAL.format("another one") + in_line(line))
    return found[0]


def _are_equal(found: Sequence[Count]) -> bool:
    """Whether the programs are the same."""
    first, second = (text(one.listing) for one in found)
    return first == second


def _independent(run: Captured, known: Collection[int]) -> list[int]:
    """The numbers of unknown sizes that follow from no tensor of another unknown size."""
    sizes = run.tape.data_sizes
    found = []
    for number, place in enumerate(sizes.places):
        if number not in known:
            made = {register for call in _behind(run, [place.register]) for register in call.results}
            others = {size for register in made for size in sizes.sized.get(register, ())}  # type: ignore[arg-type]
            if others <= {number, *known}:
                found.append(number)
    return found


def _behind(run: Captured, registers: Sequence[int]) -> list[Call]:
    """The calls that registers follow from: all that touch their memory, or that of what those take."""
    tensors = run.tape.tensors
    wanted = {storage_of(tensors[number]) for number in registers}
    found = []
    for call in reversed([*run.forward, *run.backward]):
        touched = {storage_of(tensors[number]) for number in (*call.results, *call.written) if number is not None}
        if not wanted.isdisjoint(touched):
            found.append(call)
            wanted.update(storage_of(tensors[number]) for number in call.operands)
    return found[::-1]


def _program(run: Captured, numbers: list[int], needed: Collection[int]) -> Count:
    """The program that gives these sizes."""
    places = [run.tape.data_sizes.places[number] for number in numbers]
    calls = _behind(run, [place.register for place in places])
    outputs = []
    for place in places:
        more, size = _size(run, place)
        calls += more
        outputs.append(size)
    part = replace(
        run,
        forward=calls,
        backward=[],
        outputs=outputs,
        cotangents=[None for _ in outputs],
        gradients=[None for _ in run.inputs],
    )
    listing = split(part, ()).forward
    taken = {number for call in listing.calls for number in call.operands}
    listing.inputs = [number for i, number in enumerate(run.inputs) if number in taken or i in needed]
    positions = [run.inputs.index(number) for number in listing.inputs]
    _copy_written_inputs(listing)
    if is_once(listing):
        raise Refusal(_REFUSAL.format("random numbers") + in_line(places[0].line))
    return Count(run, numbers, listing, positions)


def _copy_written_inputs(listing: Listing) -> None:
    """Have the program write to copies: the function itself runs after it."""
    tensors = listing.tape.tensors
    written = {storage_of(tensors[number]) for call in listing.calls for number in call.written}
    for i, number in enumerate(listing.inputs):
        if storage_of(tensors[number]) in written:
            listing.inputs[i] = new_register(listing.tape, tensors[number])
            clone = torch.ops.aten.clone.default
            listing.calls.insert(0, Call(clone, [Register(listing.inputs[i]), torch.preserve_format], [number]))


def _size(run: Captured, place: Place) -> tuple[list[Call], int]:
    """The calls that give a size, and its register, on the device of the program."""
    aten = torch.ops.aten
    tape = run.tape
    calls = []
    register, dimension = place.register, place.dimension
    device = tape.tensors[register].device
    with tape.fake_mode:
        if dimension is None:
            rank = tape.tensors[register].dim()
            marked = new_register(tape, torch.empty((0, rank), dtype=torch.int64, device=device))
            calls.append(Call(aten.nonzero.default, [Register(register)], [marked]))
            register, dimension = marked, 0
        shape = new_register(tape, torch.empty(tape.tensors[register].dim(), dtype=torch.int64, device="cpu"))
        part = new_register(tape, tape.tensors[shape][dimension : dimension + 1])
        size = new_register(tape, torch.empty(1, dtype=torch.int64, device=device))
    calls += [
        Call(aten._shape_as_tensor.default, [Register(register)], [shape]),
        Call(aten.slice.Tensor, [Register(shape), 0, dimension, dimension + 1, 1], [part]),
        Call(aten._to_copy.default, [Register(part), *[DEFAULT] * 2, device, *[DEFAULT] * 3], [size]),
    ]
    return calls, size
