"""What a graph takes from a PyTorch module besides its tensors: attributes, parts and hooks.

They are constants of a graph. Where somebody has changed them since it was compiled, another one is compiled
(bridge/programs/modes.py). What a call in a graph changes itself does not count: a graph refuses what the next call
would use of that (bridge/programs/attributes.py). What calls in PyNative mode change counts if graphs' calls do
something else then: they are captured once more when that is asked first.
"""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from bridge.primitive.kernel import one_at_a_time
from bridge.programs.after_others import Planned, PlannedCalls
from bridge.programs.counters import Counters, Noted
from bridge.programs.in_cpp import library
from bridge.programs.settings import Settings
from bridge.programs.unchanged import Watched

MANY = 8  # graphs of a module; a value that changes in each step has more


class Configuration:
    """The settings of a module that graphs have, by numbers: equal ones have the same number.

    Attributes:
        calls: those of the module that graphs have.
        last_number: that of the settings of the last call.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.calls = PlannedCalls()
        self._module = module
        self._own: set[tuple[str, str]] = set()  # those that calls of the module change, and that do not count
        self._open: set[tuple[str, str]] = set()  # those that calls have changed since a graph asked last
        self._looked_at: set[tuple[str, str]] = (
            set()
        )  # those that calls change, and of which no graph's call takes notice
        self._met: list[Settings] = []
        self._before: Settings | None = None  # those that the number is of, if others have been looked at since
        self._taken: dict[int, bool] = {}
        self._is_noted = False
        self._unknown: set[int] = set()  # for the settings with these numbers that is not all that programs take
        self._is_known = False
        self._look()
        self._met.append(self._now)
        self.last_number = 0

    def number(self) -> int:
        """That of the settings at hand."""
        self.look()
        if self._open:
            with one_at_a_time:
                self._decide()
        if self._before is not None:
            with one_at_a_time:
                before, self._before = self._before, None
                if self._now.others(before):
                    self.last_number = self._found(before)
                    self._is_known = self._is_noted and self.last_number not in self._unknown
        return self.last_number

    def look(self) -> None:
        """Take the settings at hand for what others have made them. They have a number once a graph asks for it: what
        only PyNative mode meets would be kept for nothing."""
        if not self._is_same():
            with one_at_a_time:  # a capture changes attributes for a while
                self._before = self._before or self._now
                self._look()

    def watched(self) -> Watched:
        """What the number follows from."""
        return self._now.watched()

    def name_among(self, tensors: set[int]) -> str:
        """The name of one of its tensors with these ids, besides its own; empty if there is none."""
        return self._now.name_among(tensors)

    def note_taken(self, taken: Mapping[int, bool] | None) -> None:
        """A program for the settings at hand takes tensors with these storages (see Settings.leave_out_data); None if
        it is not known which."""
        if taken is None:
            self._unknown.add(self.last_number)
        else:
            for storage, is_constant in taken.items():
                self._taken[storage] = is_constant or self._taken.get(storage, False)
        self._is_noted, self._is_known = True, self.last_number not in self._unknown
        self._look()
        self._met[self.last_number] = self._now

    def settle(self) -> None:
        """A capture has ended: what is otherwise now was changed by that."""
        if not self._is_same():
            before = self._now
            self._look()
            self._leave_out(self._now.others(before))

    def note_changes(self) -> None:
        """A call of the module in PyNative mode has ended: what is otherwise now was changed by that."""
        if not self._is_same():
            before = self._now
            self._look()
            self._open |= self._now.others(before)
            self._now.leave_out(self._open)

    def add(self, call: Planned) -> None:
        """A graph has this call now. It may take notice of what others do not."""
        if self.calls.add(dataclasses.replace(call, settings=self.last_number)) and self._looked_at:
            self._own -= self._looked_at
            self._look()
            for settings in self._met:
                settings.take(self._looked_at, self._now)
            self._looked_at = set()

    def _decide(self) -> None:
        """Leave out what calls in PyNative mode have changed, unless a graph's call does something else with that, or
        with what it may be much later."""
        names, self._open = self._open, set()
        self._look()
        met = self._met[self.last_number]
        changed = self._now.others(met) & names
        if not changed:
            return
        if self._do_as_planned(met, changed):
            self._looked_at |= changed
            self._leave_out(changed)
        else:
            self._before = self._before or met

    def _do_as_planned(self, met: Settings, names: set[tuple[str, str]]) -> bool:
        """Whether graphs' calls do so, with these settings and with what they may be after many changes more."""
        root = type(self._module).__name__
        parts = {f"{root}.{path}".rstrip("."): part for path, part in self._module.named_modules()}
        changes = met.roots(names, parts), lambda: Settings(self._module).roots(names, parts)
        with (noted := Noted(*changes)):
            if not self.calls.do_as_planned(self.last_number):
                return False
        counters = Counters(*changes, noted.answers)
        if not counters.names:
            return True
        for _ in counters.rounds():
            with counters:
                if not self.calls.do_as_planned(self.last_number):
                    return False
        return True

    def _leave_out(self, names: set[tuple[str, str]]) -> None:
        self._own |= names
        for settings in filter(None, (self._now, self._before, *self._met)):
            settings.leave_out(self._own)

    def _is_same(self) -> bool:
        is_same = all(held.is_same() for held in self._held) and self._now.are_in_place()
        return is_same and self._data == self._now.data()

    def _look(self) -> None:
        self._now = Settings(self._module)
        self._now.leave_out(self._own | self._open)
        # The mode is no setting (modes.py).
        self._held = [_Held(self._now.namespaces, besides=b"training"), _Held(self._now.containers)]
        if self._is_known:
            self._now.leave_out_data(self._taken)
        self._data = self._now.data()

    def _found(self, before: Settings) -> int:
        for number, met in enumerate(self._met):
            if not self._now.others(met):
                return number
        self._met.append(self._now)
        if len(self._met) == MANY:
            path, name = min(self._now.others(before))
            warnings.warn(
                f"{path}.{name} was changed again: {MANY} graphs were compiled for the values of a module's "
                "attributes, one for each. Keep a value that changes often in a buffer",
                stacklevel=1,
            )
        return len(self._met) - 1


class _Held:
    """What containers held when this was made.

    Args:
        containers: dictionaries, lists and tuples.
        besides: the key of dictionaries whose value does not count; None if all count.
    """

    def __init__(self, containers: list[Any], besides: bytes | None = None) -> None:
        self._address = library().ms_ext_contents(containers, besides)
        weakref.finalize(self, library().ms_ext_free_contents, self._address)

    def is_same(self) -> bool:
        """Whether they hold the same objects."""
        return bool(library().ms_ext_contents_are_same(self._address))


# By the ids of the modules, which the configurations keep.
_known: weakref.WeakValueDictionary[int, Configuration] = weakref.WeakValueDictionary()


def configuration_of(module: torch.nn.Module) -> Configuration:
    """That of a module that a graph has."""
    found = _known.get(id(module))
    if found is None:
        found = _known[id(module)] = Configuration(module)
    return found


class own_changes:
    """Inside, modules change their attributes themselves."""

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        self._modules = modules

    def __enter__(self) -> None:
        if _known:
            for known in self._in_graphs():
                known.look()

    def __exit__(self, *_: object) -> None:
        if _known:
            for known in self._in_graphs():
                known.note_changes()

    def _in_graphs(self) -> Iterator[Configuration]:
        return filter(None, (_known.get(id(module)) for module in self._modules))
