"""A captured function as files: its programs, and what graph mode has to know of them."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from bridge.op import dtypes
from bridge.programs.calls import draws, in_line
from bridge.programs.capture import Captured, Spec, capture
from bridge.programs.counts import count
from bridge.programs.data_sizes import Line, Sizes, stand_ins
from bridge.programs.fits import fitting
from bridge.programs.folded import folding
from bridge.programs.kept_elsewhere import KeptElsewhere
from bridge.programs.listing import Listing, is_once
from bridge.programs.memory import storage_of
from bridge.programs.passing import Source
from bridge.programs.size_numbers import SizeNumber
from bridge.programs.split import split
from bridge.programs.tables import is_table
from bridge.programs.text import lines, text
from bridge.programs.uniform import uniform

# Shape and dtype of a tensor, as bridge.infer has them.
Result = tuple[tuple[int, ...], str]


@dataclass
class ProgramFile:
    """One program.

    Args:
        path: its text.
        digest: of that without the lines where calls stand.
        groups: the positions of its inputs, those of each dtype together: a primitive's tuple has one dtype.
        results: shape and dtype of each of its results. One without dimensions has one of size 1 in MindSpore.
        changes: whether it writes to inputs or draws random numbers, or goes on after such a one, so that it runs once
            and in order.
        dtypes: the names of the groups' dtypes.
        text_size: how many bytes of the file are its text; then come its lines.
        draws: whether it draws random numbers, which a second run would not draw again.
    """

    path: str = field(compare=False)
    digest: str
    groups: list[list[int]]
    results: list[Result]
    changes: bool
    dtypes: list[str]
    text_size: int
    draws: bool

    @classmethod
    def read(cls, fields: dict[str, Any]) -> ProgramFile:
        """From what JSON has of it."""
        results = [(tuple(shape), dtype) for shape, dtype in fields["results"]]
        return cls(**{**fields, "results": results})


@dataclass
class Plan:
    """The programs of a function.

    Args:
        forward: gives the function's results, and then what backward needs.
        results, later, later_sources: see Pair and Source.
        tree: the form of what the function returns (bridge/programs/result_tree.py).
        backward, sources, gradients: see Pair and Source.
        written: the positions of the inputs that forward writes to.
        no_gradient: why there is no backward although a gradient may be asked for: PyTorch's error (`error_of`).
        finds_tensors: whether the function finds tensors with data, besides its state.
        left: the names of what its calls leave for others, which a graph does not write.
        leaves: the names of what a call leaves in attributes that others may use (after_others.py).
        overwrites: whether it reads none of these before it sets them, and leaves other values than those that code
            asks for, as None.
        remembers: the names of those of them that its next calls leave as they are, as what is computed once.
        leaves_elsewhere: the names of what it leaves for them in files and classes, and around functions.
        modes: those of the modules' parts after a call that changes them, and of which it does so.
        does: what tells from others what the function does (folded.py); empty if that is too large.
        left_out, replaced: see State. The function of the first is one that differentiates.
    """

    forward: ProgramFile
    results: list[tuple[int, int]]
    tree: Any
    later: list[ProgramFile]
    later_sources: list[list[tuple[str, int]]]
    backward: list[ProgramFile]
    sources: list[list[tuple[str, int]]]
    gradients: list[tuple[int, int] | None]
    written: list[int]
    no_gradient: str
    finds_tensors: bool = True
    left: list[str] = field(default_factory=list, compare=False)
    leaves: list[str] = field(default_factory=list, compare=False)
    overwrites: bool = field(default=False, compare=False)
    remembers: list[str] = field(default_factory=list, compare=False)
    leaves_elsewhere: list[str] = field(default_factory=list, compare=False)
    modes: dict[str, bool] = field(default_factory=dict, compare=False)
    does: str = field(default="", compare=False)
    left_out: list[int] = field(default_factory=list, compare=False)
    replaced: list[int] = field(default_factory=list, compare=False)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, written: str) -> Plan:
        fields = json.loads(written)
        fields["forward"] = ProgramFile.read(fields["forward"])
        fields["results"] = [(part, position) for part, position in fields["results"]]
        for programs, sources in (("later", "later_sources"), ("backward", "sources")):
            fields[programs] = [ProgramFile.read(program) for program in fields[programs]]
            fields[sources] = [[(kind, position) for kind, position in own] for own in fields[sources]]
        fields["gradients"] = [None if gradient is None else tuple(gradient) for gradient in fields["gradients"]]
        return cls(**fields)

    @property
    def files(self) -> list[str]:
        return [program.path for program in (self.forward, *self.later, *self.backward)]


@dataclass
class Origin:
    """What a plan came from, besides the function and its arguments.

    Args:
        files: those of the code that called PyTorch.
        tensors: the ids of the tensors that the function has found.
        tables: what each call writes to tensors that the function has found, by the ids of these; None if it follows
            from parameters too.
        follows_from_state: whether a tensor that it has made follows from the state alone.
        is_constant: whether a tensor that it has made has the same data in each call, whatever the state holds.
        data_of: gives the data of a tensor that it has made; None if it is not the same in each call. Frozen parameters
            and buffers are taken for the same, if the function does not write to them.
        folded: gives what is equal where two captures do the same (folded.py).
        size: the bytes of constants, and of inputs that are the same in each call.
        kept: what it has left elsewhere.
        taken: the storages of tensors with data that it takes, and whether it takes these for constant.
        held: the tensors of the state that it takes to hold what they hold now (held.py), by their positions.
    """

    files: set[str]
    tensors: set[int]
    tables: dict[int, torch.Tensor | None]
    follows_from_state: Callable[[torch.Tensor], bool]
    is_constant: Callable[[torch.Tensor], bool]
    data_of: Callable[[torch.Tensor], torch.Tensor | None]
    folded: Callable[[], Any]
    size: int
    kept: KeptElsewhere
    taken: dict[int, bool]
    held: dict[int, torch.Tensor]

    def is_new(self, tensor: torch.Tensor) -> bool:
        """Whether each call makes a tensor anew."""
        return isinstance(tensor, FakeTensor) and self.data_of(tensor) is None


def make(
    function: Callable[..., Sequence[torch.Tensor]],
    state: Sequence[torch.Tensor],
    inputs: Sequence[Spec],
    device: str,
    folder: pathlib.Path,
    shapes_of: Sequence[int],
    sizes: Sizes,
    guessed: Collection[SizeNumber],
    is_uniform: bool,
) -> tuple[Plan, Origin]:
    """Capture a function (see `capture`) and write its programs into a folder. The caller fills in the tree.

    Args:
        shapes_of: the positions of inputs that backward takes in any case.
        sizes: those that data decides.
        guessed: the numbers of further ones, which have to fit (fits.py).
        is_uniform: whether the programs have the form that they have for all sizes (uniform.py).
    """

    def captured_with(sizes: Sizes) -> Captured:
        return capture(function, state, inputs, device, sizes)

    def with_guesses(size: int) -> Sizes:
        return replace(sizes, known={**sizes.known, **dict.fromkeys(guessed, size)})

    captured = fitting(captured_with, with_guesses, guessed)[0] if guessed else captured_with(sizes)
    origin = _origin(captured, state)
    pair = split(captured, shapes_of)
    if is_uniform:
        pair = uniform(captured, pair, inputs, device)
    forward = _write(pair.forward, folder)
    plan = Plan(
        forward,
        pair.results,
        None,
        [replace(_write(program, folder), changes=forward.changes) for program in pair.later],
        _written_down(pair.later_sources),
        [_write(program, folder) for program in pair.backward],
        _written_down(pair.sources),
        pair.gradients,
        pair.written,
        captured.no_gradient,
        bool(origin.taken),
    )
    return plan, origin


class Counted(NamedTuple):
    """What is known of the sizes that a program gives.

    Args:
        numbers: theirs.
        lines: where an answer is a size, as files and lines; None if none is.
        asks_otherwise: see Count.
        where: the line that asks for the first of them, for errors.
    """

    numbers: list[SizeNumber]
    lines: list[Line] | None
    asks_otherwise: bool
    where: str

    @classmethod
    def read(cls, tree: Sequence[Any]) -> Counted:
        """What the tree of the program's plan has."""
        numbers, *others = tree
        return cls([*map(SizeNumber.read, numbers)], *others)


def make_count(
    function: Callable[..., Sequence[torch.Tensor]],
    state: Sequence[torch.Tensor],
    inputs: Sequence[Spec],
    device: str,
    folder: pathlib.Path,
    shapes_of: Sequence[int],
    sizes: Sizes,
    guessed: Collection[SizeNumber],
    wanted: Counted | None,
    is_quick: bool,
) -> tuple[Plan, Origin]:
    """The plan of the program that gives sizes that data decides (counts.py). Its tree has what is known of them. If it
    has no results, these sizes have to fit.

    Args:
        shapes_of: the positions of inputs that it takes in any case.
        sizes: those that it is told.
        guessed: the numbers of those of which it is known that they have to fit.
        wanted: what is known of these sizes, of the program for other known sizes.
        is_quick: see count.
    """
    origins: dict[int, Origin] = {}

    def captured_with(sizes: Sizes) -> Captured:
        run = capture(function, state, inputs, device, sizes)
        origins[id(run)] = _origin(run, state)
        return run

    needed = range(len(inputs)) if sizes.known else shapes_of  # the same ones for all known sizes
    pairs = stand_ins(spec.shape for spec in inputs)
    found = count(captured_with, sizes, needed, guessed, wanted and wanted.numbers, pairs, is_quick)
    program = _write(found.listing, folder)
    program.groups = [[found.positions[i] for i in group] for group in program.groups]
    lines = None if sizes.both_ways is None else sorted(sizes.both_ways)
    if wanted is None:
        first = found.run.tape.data_sizes.places.get(found.numbers[0])
        wanted = Counted(found.numbers, lines, found.asks_otherwise, in_line(first.line if first else None))
    tree = [*wanted._replace(lines=lines)]
    # What the function keeps is that of the last run.
    runs = list(origins.values())
    taken: dict[int, bool] = {}
    for run in runs:
        taken |= run.taken
    nothing: list[tuple[int, int] | None] = [None] * len(found.run.inputs)
    results = [(0, i) for i in range(len(found.listing.outputs))]
    plan = Plan(program, results, tree, [], [], [], [], nothing, [], "", bool(taken))
    return plan, replace(
        origins[id(found.run)],
        taken=taken,
        follows_from_state=lambda tensor: any(run.follows_from_state(tensor) for run in runs),
    )


def _origin(captured: Captured, state: Sequence[torch.Tensor]) -> Origin:
    tape = captured.tape
    frozen = {
        number: tensor
        for i, (number, tensor) in enumerate(zip(captured.inputs, state, strict=False))
        if number in captured.frozen and i not in captured.written
    }
    found = {id(tensor) for number, tensor in tape.constants.items() if number not in tape.fresh}
    follows_from_state = functools.partial(tape.follows_from, captured.inputs[: captured.state])
    tables = {
        id(tensor): tape.known(number)
        for number, tensor in tape.constants.items()
        if is_table(captured, storage_of(tape.tensors[number]))
    }
    return Origin(
        tape.files,
        found,
        tables,
        follows_from_state,
        tape.is_constant,
        functools.partial(tape.data_with, frozen),
        folding(captured, frozen),
        sum(tensor.nbytes for tensor in (*tape.constants.values(), *frozen.values())),
        tape.kept,
        tape.taken(),
        tape.held.taken,
    )


def _written_down(sources: Sequence[Sequence[Source]]) -> list[list[tuple[str, int]]]:
    return [[(source.kind, source.position) for source in own] for own in sources]


def _write(listing: Listing, folder: pathlib.Path) -> ProgramFile:
    """Write a program under a name that follows from its content."""
    found = [listing.tape.tensors[number].dtype for number in listing.inputs]
    groups = _by_dtype(found)
    names = [dtypes.name(found[group[0]]) for group in groups]
    listing.inputs = [listing.inputs[position] for group in groups for position in group]
    calls = text(listing)
    content = calls + lines(listing)
    path = folder / f"{hashlib.sha256(content).hexdigest()[:32]}.program"
    if not path.exists() or path.read_bytes() != content:  # it may be damaged
        folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(content)
        os.replace(fresh, path)
    results = [(tuple(output.spec.shape), dtypes.name(output.spec.dtype)) for output in listing.outputs]
    digest = hashlib.sha256(calls).hexdigest()
    is_drawing = any(map(draws, listing.calls))
    return ProgramFile(str(path), digest, groups, results, is_once(listing), names, len(calls), is_drawing)


def _by_dtype(dtypes: Sequence[torch.dtype]) -> list[list[int]]:
    groups: dict[torch.dtype, list[int]] = {}
    for position, dtype in enumerate(dtypes):
        groups.setdefault(dtype, []).append(position)
    return list(groups.values())
