"""Whether a call of a module does something else after another one: with other sizes, arguments or answers of data, in
another mode, or of another program that has the module.

A graph does not write attributes. So one call must not read there what another one leaves, as where positions are
scaled by the greatest length so far.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from bridge.programs.attributes import Attributes
from bridge.programs.folded import digest
from bridge.programs.later_calls import Captured, do_the_same
from bridge.programs.plan import Plan
from bridge.programs.stand_ins import StandIns

_OTHERS = 3  # so many calls each one is compared with
_MOST = 8  # so many calls are known, the last ones
_ENOUGH = 3  # so many comparisons of calls of two kinds that leave the same names


class _Program(Protocol):
    """What has the calls (GraphProgram)."""

    @property
    def modules(self) -> Sequence[torch.nn.Module]:
        """Those that it runs."""

    def capture_leaving(self, wanted: Any) -> Captured:
        """A new plan of a call, whose attributes stay as the call leaves them."""


@dataclass(frozen=True)
class Planned:
    """A call that a graph has.

    Args:
        program: what it is a call of.
        wanted: what its plan is for.
        name: under what the plan is kept; empty if it is not.
        plan: that.
        training: the modes of the modules.
        settings: the number of those that it was planned for (Configuration, NamedConstants).
    """

    program: weakref.ref[_Program]
    wanted: Any
    name: str
    plan: Plan
    training: list[bool]
    settings: int = 0

    @classmethod
    def of(cls, program: _Program, wanted: Any, name: str, plan: Plan) -> Planned:
        """A call in the modes at hand."""
        return cls(weakref.ref(program), wanted, name, plan, [part.training for part in _parts(program)])

    @property
    def leaves(self) -> list[str]:
        """The names of what it leaves for others."""
        return [*self.plan.leaves, *self.plan.leaves_elsewhere, *self.plan.modes]

    @property
    def stays(self) -> list[str]:
        """The names of that part of it that stays there when a graph is compiled."""
        return [*self.plan.remembers, *self.plan.leaves_elsewhere]

    @property
    def kind(self) -> Any:
        """What calls have in common that take notice of the same attributes, mostly."""
        return self.program, tuple(self.training)

    def pair(self, other: Planned) -> frozenset[Any]:
        """What pairs of calls have in common of which one reads what the other one leaves, or none does, mostly."""
        return frozenset((call.kind, tuple(call.leaves)) for call in (self, other))

    def is_of(self, other: Planned) -> bool:
        """Whether both are one call."""
        return self.name == other.name if self.name else self.wanted is other.wanted


class PlannedCalls:
    """The calls of a module that graphs have."""

    def __init__(self) -> None:
        self._calls: list[Planned] = []
        self._apart: Counter[frozenset[Any]] = Counter()

    def add(self, call: Planned) -> bool:
        """Take one for the last. Whether it is a new one."""
        others = [other for other in self._calls if not other.is_of(call) and other.program() is not None]
        is_new = len(others) == len(self._calls)
        self._calls = [call, *others][:_MOST]
        return is_new

    def do_as_planned(self, settings: int) -> bool:
        """Whether those that were planned for settings do what their plans do, as attributes are now."""
        calls = [call for call in self._calls if call.settings == settings and call.program() is not None]
        with torch.inference_mode(False):
            return all(map(_does_as_planned, calls))

    def others(self, call: Planned) -> Iterator[Planned]:
        """Those with which a call is compared, the last one first."""
        others = (one for one in self._calls if not one.is_of(call) and one.program() is not None)
        found = [one for one in others if one.leaves or call.leaves]
        for other in found[:_OTHERS]:
            if self._apart[call.pair(other)] < _ENOUGH:
                yield other

    def note_apart(self, one: Planned, other: Planned) -> None:
        """Two calls leave nothing for each other."""
        self._apart[one.pair(other)] += 1


def left_for(one: Planned, other: Planned) -> str | None:
    """The name of what a call leaves otherwise, if the other one does something else then, or the reverse; empty if
    there is none, and None where a call cannot be captured as things are now."""
    if one.plan.leaves or other.plan.leaves:
        name = _left_in_attributes(one, other)
        if name != "":
            return name
    for call, first in ((other, one), (one, other)):
        if name := _other_mode(call, first):
            return name
    # What both leave in files and classes is there now, and what they remember.
    there = [*one.stays, *other.stays] if one.settings == other.settings else []
    return there[0] if there and not all(map(_does_as_planned, (one, other))) else ""


def _left_in_attributes(one: Planned, other: Planned) -> str | None:
    """The same of attributes."""
    if _reads_nothing(one, other) and _reads_nothing(other, one):
        return ""
    modules = {id(module): module for call in (one, other) for module in _program(call).modules}.values()
    before = Attributes(modules)
    try:
        try:
            left = [_leaving(call, before, modules) for call in (one, other)]
        except Exception:
            return None
        if not left[0].after.may_mean_other(left[1].after):
            return ""
        for call, own, first in ((other, left[1], left[0]), (one, left[0], left[1])):
            if first.names:
                first.after.restore()
                if not _does_the_same(call, own):
                    return first.names[0]
                before.restore()
        return ""
    finally:
        before.restore()


def _other_mode(call: Planned, first: Planned) -> str:
    """The name of a mode in which a call does something else, and that another one leaves; empty if there is none."""
    if not first.plan.modes or first.training != call.training:  # else somebody sets them between the calls
        return ""
    names = _names_of_parts(_program(call))
    modes = [
        first.plan.modes.get(f"{name}.training", training) for name, training in zip(names, call.training, strict=True)
    ]
    does = modes == call.training or _does_as_planned(dataclasses.replace(call, training=modes))
    return "" if does else next(iter(first.plan.modes))


def _reads_nothing(call: Planned, other: Planned) -> bool:
    """Whether a call reads nothing of what another one leaves in attributes, if that can be told at once."""
    if not other.plan.leaves:
        return True
    if not other.plan.overwrites:
        return False
    names = {*other.plan.leaves} - ({*call.plan.leaves} if call.plan.overwrites else set())
    if not names:
        return True
    program = _program(call)
    parts = dict(zip(_names_of_parts(program), _parts(program), strict=True))
    places = [(parts.get(where), key) for where, _, key in (name.rpartition(".") for name in names)]
    known = [(vars(part), key) for part, key in places if part is not None and key in vars(part)]
    if len(known) < len(names):
        return False
    with StandIns(known) as left:
        does = _does_as_planned(call)
    return does and not left.are_used


@dataclass(frozen=True)
class _Left:
    """What a call has done, and left."""

    found: Captured
    after: Attributes
    names: list[str]


def _leaving(call: Planned, before: Attributes, modules: Iterable[torch.nn.Module]) -> _Left:
    found = _capture(call)
    left = _Left(found, Attributes(modules), before.changed())
    before.restore()
    return left


def _does_as_planned(call: Planned) -> bool:
    before = Attributes(_program(call).modules)
    try:
        found, origin = _capture(call)
        now, planned = (Plan.from_json(one.to_json()) for one in (found, call.plan))
        may_be = bool(planned.does) and now.tree == planned.tree
        return now == planned or (may_be and digest(origin.folded()) == planned.does)
    except Exception:
        return False
    finally:
        before.restore()


def _does_the_same(call: Planned, own: _Left) -> bool:
    try:
        return do_the_same(_capture(call), own.found)
    except Exception:
        return False


def _capture(call: Planned) -> Captured:
    """A new plan of a call, in its modes. Attributes stay as the call leaves them."""
    program = _program(call)
    with in_modes(_parts(program), call.training):
        return program.capture_leaving(call.wanted)


def _program(call: Planned) -> _Program:
    program = call.program()
    assert program is not None
    return program


def _names_of_parts(program: _Program) -> list[str]:
    roots = ((type(root).__name__, root) for root in program.modules)
    return [f"{name}.{path}".rstrip(".") for name, root in roots for path, _ in root.named_modules()]


def _parts(program: _Program) -> list[torch.nn.Module]:
    return [part for module in program.modules for part in module.modules()]


class in_modes:
    """Inside, parts of modules train, or do not, as `wanted` has it for each."""

    def __init__(self, parts: Sequence[torch.nn.Module], wanted: Sequence[bool]) -> None:
        self._parts, self._wanted = parts, wanted

    def __enter__(self) -> None:
        self._before = [part.training for part in self._parts]
        self._set(self._wanted)

    def __exit__(self, *_: object) -> None:
        self._set(self._before)

    def _set(self, modes: Sequence[bool]) -> None:
        for part, training in zip(self._parts, modes, strict=True):
            part.training = training
