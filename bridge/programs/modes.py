"""What MindSpore compiles has a graph for each of the modes and settings that the modules in it are in.

MindSpore compiles a function or a Cell once for the shapes and dtypes of its arguments. It does not ask whether a Cell
or module in it trains, or whether a module has another attribute, part or hook by now, or a frozen parameter, nor what
PyTorch chooses its kernels by. It is given that as a part of the name under which it keeps the graph.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.op import devices
from bridge.programs.choices import Choices, choices
from bridge.programs.configurations import Configuration, configuration_of
from bridge.programs.named_constants import NamedConstants
from bridge.programs.unchanged import Unchanged, Watched


class InGraph(Protocol):
    """What a program in a graph keeps between calls (State in bridge/programs/state.py)."""

    modules: Sequence[torch.nn.Module]
    cells: Sequence[ms.nn.Cell]
    named: NamedConstants | None

    @property
    def mark(self) -> Callable[[], int]:
        """What gives a number, which is another one if the others have something else to tell; 0 if there is something
        to follow."""

    def follow_in_graph(self) -> None:
        """Follow what PyTorch has assigned. Raises ValueError for what a graph cannot have."""

    def are_trained(self) -> list[bool]:
        """Which parameters are not frozen."""

    def has_hooks(self) -> bool:
        """Whether one has hooks of its own, which a graph refuses."""


class _First(NamedTuple):
    """What a program kept when its graph was compiled first: a mark, and which parameters were trained."""

    mark: int
    trained: list[bool]


class _CellMode(NamedTuple):
    """What a Cell is in, and to what `to_float` has MindSpore cast there; None and None for one that is gone."""

    training: bool | None
    cast_to: Any


_CHANCES = 8  # so often in a row it is tried whether calls leave all as it is


class _Graphs:
    """What the graphs have that MindSpore compiles of a function or Cell."""

    def __init__(self) -> None:
        self._states: dict[InGraph, _First] = {}
        self._parts: dict[int, torch.nn.Module] = {}  # by ids
        self._first_modes: list[bool] = []  # of the parts
        self._cells: list[weakref.ref[ms.nn.Cell]] = []  # MindSpore's, whose code it compiles or a program runs
        self._first_modes_of_cells: list[_CellMode] = []
        self._configurations: dict[Configuration | NamedConstants, int] = {}  # and the number of the settings
        self._choices: list[Choices] = []  # those that it was compiled for
        self._on_gpu = devices.target() == "GPU"
        self._first_dtypes = self._last_dtypes = _other_dtypes
        self._last_name = ""
        self._unchanged: Unchanged | None = None  # what the last name follows from
        self._chances = _CHANCES

    def add(self, states: Sequence[InGraph], cells: Sequence[ms.nn.Cell]) -> None:
        """Take what is in a graph."""
        if not states and not cells:  # it was compiled before
            return
        self._unchanged, self._chances = None, _CHANCES
        known = {cell() for cell in self._cells}
        met = dict.fromkeys([*cells, *(cell for state in states for cell in state.cells)])
        self._cells += [weakref.ref(cell) for cell in met if cell not in known]
        self._first_modes_of_cells += map(_mode, self._cells[len(self._first_modes_of_cells) :])
        for state in states:
            if state not in self._states:
                self._states[state] = _First(state.mark(), state.are_trained())
            for configuration in _configurations_of(state):
                configuration.settle()  # after a capture
                self._configurations.setdefault(configuration, configuration.number())
            for module in state.modules:
                new = {id(part): part for part in module.modules() if id(part) not in self._parts}
                self._parts |= new
                self._first_modes += [part.training for part in new.values()]

    def has_programs(self) -> bool:
        """Whether there is a program in them."""
        return bool(self._states)

    def name(self) -> str:
        """What tells the modes and settings at hand apart; empty for the first ones. What comes later does not change
        it."""
        if self._unchanged is not None and self._last_dtypes == _other_dtypes and self._unchanged.holds():
            self._chances = _CHANCES
            return self._last_name
        name = self._found_name()
        may_hold = self.has_programs() and name == self._last_name and self._chances > 0
        self._unchanged = self._watch() if may_hold else None
        self._last_name, self._last_dtypes = name, _other_dtypes
        return name

    def _watch(self) -> Unchanged | None:
        """What the name follows from; None if it has to be asked for in each call."""
        marks = [(state.mark, (), first.mark) for state, first in self._states.items()]
        now = choices(self._on_gpu)
        tells_all = all(mark != 0 and ask() == mark for ask, _, mark in marks)  # another than the first one does not
        if not tells_all or now != Choices(now.settings):
            return None
        self._chances -= 1
        modes = [
            (cell, name, value)
            for cell, mode in zip(self._cells, map(_mode, self._cells), strict=True)
            for name, value in zip(_MODE, mode, strict=True)
        ]
        watched = Watched([], [], modes, marks)
        for configuration in self._configurations:
            watched += configuration.watched()
        return Unchanged(watched, self._on_gpu)

    def _found_name(self) -> str:
        name = _others([part.training for part in self._parts.values()], self._first_modes)
        if (of_cells := [*map(_mode, self._cells)]) != self._first_modes_of_cells:
            name += self._name_of_cells(of_cells)
        for position, (configuration, first_number) in enumerate(self._configurations.items()):
            if (number := configuration.number()) != first_number:
                name += f"{position}-{number}."
        for position, (state, first) in enumerate(self._states.items()):
            if (mark := state.mark()) == 0 or mark != first.mark:
                name += self._name_of(position, state, first)
        if _other_dtypes != self._first_dtypes:
            name += f"dtypes{_other_dtypes}."
        now = choices(self._on_gpu)
        if now not in self._choices:
            self._choices.append(now)
        if number := self._choices.index(now):
            name += f"{number}~"
        return name

    def _name_of_cells(self, now: Sequence[_CellMode]) -> str:
        others = [
            f"{position}{of_cell.training}{of_cell.cast_to}"
            for position, (of_cell, first) in enumerate(zip(now, self._first_modes_of_cells, strict=True))
            if of_cell != first
        ]
        return f"cells{'-'.join(others)}."

    def _name_of(self, position: int, state: InGraph, first: _First) -> str:
        state.follow_in_graph()
        others = _others(state.are_trained(), first.trained)
        return (f"{position}+{others}" if others else "") + ("hooks." if state.has_hooks() else "")


def _configurations_of(state: InGraph) -> list[Configuration | NamedConstants]:
    found: list[Configuration | NamedConstants] = [*map(configuration_of, state.modules)]
    return found if state.named is None else [*found, state.named]


_other_dtypes = 0


def note_other_dtype() -> None:
    """A Parameter has another dtype, and other memory: graphs go on with the memory that they know."""
    global _other_dtypes
    _other_dtypes += 1


_MODE = "training", "mixed_precision_type"


def _mode(cell: weakref.ref[ms.nn.Cell]) -> _CellMode:
    found = cell()
    return _CellMode(*(getattr(found, name, None) for name in _MODE))


def _others(now: Sequence[Any], first: Sequence[Any]) -> str:
    """Which of several are not as they were first; empty if all are."""
    if now == first:
        return ""
    others = sum(1 << position for position, both in enumerate(zip(now, first, strict=True)) if both[0] != both[1])
    return f"{others:x}."


class _OfOwner(NamedTuple):
    """The graphs of a method, for the object whose method it is. MindSpore knows that by its id, which another one has
    when it is gone.

    Args:
        owner: gives the object; None for a function.
        others: how many objects had the id before.
    """

    owner: Callable[[], Any]
    others: int
    graphs: _Graphs


def _reference(owner: Any) -> Callable[[], Any]:
    """What gives an object, as long as somebody has it; for good, if nothing can tell that."""
    try:
        return weakref.ref(owner)
    except TypeError:  # as None, and objects with __slots__
        return lambda: owner


class _Compiling(threading.local):
    states: list[InGraph] | None = None
    cells: list[ms.nn.Cell] | None = None
    written: Sequence[torch.Tensor] = ()
    have_gradients: dict[int, bool] | None = None  # by ids of tensors


_compiling = _Compiling()
_compiled: weakref.WeakKeyDictionary[Any, dict[int, _OfOwner]] = weakref.WeakKeyDictionary()


def note(state: InGraph) -> None:
    """What this thread compiles has a program that keeps this. It is not captured yet."""
    for configuration in _configurations_of(state):
        configuration.number()  # what others have changed until now, the capture has not
    if _compiling.states is not None:
        _compiling.states.append(state)


def note_written(tensors: Iterable[torch.Tensor]) -> None:
    """What this thread compiles has a program that writes to these."""
    _compiling.written = [*_compiling.written, *tensors]


def note_differentiated(tensors: Iterable[torch.Tensor], have_gradients: Iterable[bool]) -> None:
    """What this thread compiles has a program that has these, and whether it gives them gradients."""
    if (found := _compiling.have_gradients) is not None:
        for tensor, has_gradient in zip(tensors, have_gradients, strict=True):
            found[id(tensor)] = found.get(id(tensor), False) or has_gradient


def is_left_out(tensor: torch.Tensor) -> bool:
    """Whether programs of what this thread compiles have this tensor, and none gives it a gradient."""
    return not (_compiling.have_gradients or {}).get(id(tensor), True)


def changed_before(module: torch.nn.Module) -> str:
    """The name of a tensor of a module that is no part, which programs before have changed in what this thread
    compiles: a graph takes for a constant what it was. Empty if there is none."""
    written = {id(tensor) for tensor in _compiling.written}
    return configuration_of(module).name_among(written) if written else ""


@functools.cache
def compile_for_modes() -> None:
    """Have MindSpore compile functions and Cells so."""
    _mindspore.around_compile(_compile, _name_of)
    _mindspore.tell_of_cells(_note_cell)


def _note_cell(cell: ms.nn.Cell) -> None:
    """What this thread compiles has a Cell."""
    if _compiling.cells is not None:
        _compiling.cells.append(cell)


def _name_of(function: Any) -> Callable[[], str] | None:
    """What gives what tells the modes and settings at hand apart for a function that has been compiled; None if it has
    not, or without a program."""
    known = _compiled.get(function, {}).get(id(None))
    return known.graphs.name if known is not None and known.graphs.has_programs() else None


def _compile(compiled: Any, owner: Any, compile_as: Callable[[str], Any]) -> Any:
    of_owners = _compiled.setdefault(compiled, {})
    of_owner = of_owners.get(id(owner))
    if of_owner is None or of_owner.owner() is not owner:
        others = 0 if of_owner is None else of_owner.others + 1
        of_owner = of_owners[id(owner)] = _OfOwner(_reference(owner), others, _Graphs())
    graphs = of_owner.graphs
    states: list[InGraph] = []
    cells: list[ms.nn.Cell] = []
    before = vars(_compiling).copy()
    vars(_compiling).update(states=states, cells=cells, written=(), have_gradients={})
    try:
        found = compile_as((f"object{of_owner.others}." if of_owner.others else "") + graphs.name())
        graphs.add(states, cells)
        return found
    finally:
        vars(_compiling).clear()
        vars(_compiling).update(before)
