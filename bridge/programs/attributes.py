"""What a module keeps for its next call elsewhere than in parameters and persistent buffers. A graph is captured once,
and would go on with what stood there at that time."""

from __future__ import annotations

import copy
import enum
import functools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from bridge.programs.calls import no_modes
from bridge.programs.counters import Root
from bridge.programs.kept_elsewhere import LARGE, is_own
from bridge.programs.named_values import places
from bridge.programs.seen import (
    CONTAINERS,
    GENERATORS,
    PLAIN,
    WHOLE,
    Look,
    Seen,
    children_of,
    is_same,
    items_of,
    refill,
    refilled,
    tensors_in,
)
from bridge.programs.stand_ins import Place
from bridge.programs.values import copied
from bridge.programs.written_down import is_of_package

_ASKED_FOR = (bool, type(None), type(Ellipsis), type(NotImplemented), enum.Enum, type, FunctionType)
# Of what a file has, these and objects of the user's classes.
_GLOBALS = (*PLAIN, *CONTAINERS, *GENERATORS, set, np.ndarray, SimpleNamespace, torch.Tensor)
# The dictionaries that a graph knows, and the mode, which belongs to the plan.
KNOWN = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"}


class _Registered:
    """The parameters and parts that a module has registered.

    Attributes:
        path: the module's.
        training: the mode in which it is captured.
    """

    def __init__(self, path: str, module: torch.nn.Module) -> None:
        self.path, self._module = path, module
        self._places = [(place, dict(place)) for place in registers(module)]
        self.training = self._before = module.training

    def take_mode(self) -> bool:
        """Take the mode for the one in which it is captured. Gives whether it is another one."""
        before, self.training = self.training, self._module.training
        return before != self.training

    def give_back_mode(self) -> None:
        self._module.training = self._before

    def take_back(self) -> list[str]:
        """Put them back. Gives the names of those that were others."""
        changed = []
        for place, before in self._places:
            others = [key for key in before.keys() | place.keys() if place.get(key) is not before.get(key)]
            if others:
                changed += [f"{self.path}.{key}" for key in sorted(others)]
                place.clear()
                place.update(before)
        if self._module.training != self.training:
            changed.append(f"{self.path}.training")
            self._module.training = self.training
        return changed


def registers(module: torch.nn.Module) -> list[dict[str, Any]]:
    places = module._parameters, module._modules
    return [place for place in places if isinstance(place, dict)]  # TorchScript's are C++'s


class Attributes:
    """The attributes of modules and of their parts, and what their files and classes keep, as they are now."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        look = Look()
        parts = [(type(root).__name__, *part) for root in modules for part in root.named_modules()]
        self._before = [(f"{name}.{path}".rstrip("."), part, _attributes(part, look)) for name, path, part in parts]
        self._registered = [_Registered(f"{name}.{path}".rstrip("."), part) for name, path, part in parts]
        self._functions = look.functions
        self._classes = {kind for _, _, part in parts for kind in type(part).__mro__ if is_own(_file(kind))}
        self._globals, self._tensors = self._globals_now()
        self._written: list[tuple[torch.Tensor, torch.Tensor]] = []  # tables, and what they had

    def take_back_registered(self) -> list[str]:
        """Have the modules have the parameters, parts and modes that they had. Gives the names of those that were
        others."""
        return [name for registered in self._registered for name in registered.take_back()]

    def take_modes(self) -> dict[str, bool]:
        """Take the modes that the modules have now for those in which they are captured. Gives those that are other
        ones, by their paths."""
        return {
            f"{registered.path}.training": registered.training
            for registered in self._registered
            if registered.take_mode()
        }

    def give_back_modes(self) -> None:
        """Have the modules be in the modes in which they were."""
        for registered in self._registered:
            registered.give_back_mode()

    def changed(self, of_users: bool = False) -> list[str]:
        """The names of those that are others now.

        Args:
            of_users: whether modules of the user's count only.
        """
        return [
            f"{path}.{key}"
            for path, module, _, changed in self._changed()
            for key in (changed if not (of_users and is_of_package(type(module).__module__)) else ())
        ]

    def changed_globals(self) -> list[str]:
        """The names of what their files and classes have otherwise now."""
        before, compared = self._globals, set[tuple[int, int]]()
        now, tensors = self._globals_now()
        plain = [name for name in now if name in before and not is_same(before[name], now[name], compared)]
        names = dict.fromkeys([*self._tensors, *tensors])
        others = [name for name in names if not _are_same(self._tensors.get(name, []), tensors.get(name, []))]
        return list(dict.fromkeys([*plain, *others]))

    def _globals_now(self) -> tuple[dict[str, Seen], dict[str, list[torch.Tensor]]]:
        """The numbers, texts, containers, generators and own objects in the files and classes of the modules, without
        tensors; and the tensors."""
        found = {root.name: root.seen for root in self._roots_elsewhere()}
        met = set[int]()  # a tensor that several names lead to is the first one's
        tensors = {name: tensors_in(seen, met) for name, seen in found.items()}
        return _without_tensors(found, _holders_of_tensors(found.values()), set()), tensors

    def roots_then(self) -> list[Root]:
        """What the modules, their files and their classes had, by names."""
        own = [Root(f"{path}.{key}", None, key, seen) for path, _, has in self._before for key, seen in has.items()]
        return [*own, *(Root(name, None, name, seen) for name, seen in self._globals.items())]

    def roots(self) -> list[Root]:
        """What they have now, by names."""
        look = Look()
        own = [
            Root(f"{path}.{key}", _holder(module, key), key, seen)
            for path, module, _ in self._before
            for key, seen in _attributes(module, look).items()
        ]
        return [*own, *self._roots_elsewhere()]

    def _roots_elsewhere(self) -> list[Root]:
        """The numbers, texts, containers, generators, own objects and tensors in the files and classes."""
        look = Look()
        spaces: dict[str, Any] = {kind.__module__: vars(sys.modules[kind.__module__]) for kind in self._classes}
        spaces |= {f"{kind.__module__}.{kind.__qualname__}": kind for kind in self._classes}
        of_spaces = [
            (space, name, value, holder)
            for space, holder in spaces.items()
            for name, value in [*(vars(holder) if isinstance(holder, type) else holder).items()]
        ]
        named = [
            (place.where, place.name, place.get(place.name), place.holder)
            for place in places([*self._classes, *self._functions])
        ]
        found = {
            f"{space}.{name}": Root(f"{space}.{name}", holder, name, look.at(value))
            for space, name, value, holder in (*of_spaces, *named)
            if not name.startswith("__") and (isinstance(value, _GLOBALS) or not is_of_package(type(value).__module__))
        }
        return [*found.values()]

    def places_set(self) -> list[Place] | None:
        """Where modules have attributes that are others now; None if one is not a module's alone, or holds what code
        compares with (`is`)."""
        found: list[Place] = []
        for _, module, _, now in self._changed():
            for key, seen in now.items():
                if seen is None or key not in vars(module) or isinstance(seen.value, _ASKED_FOR):
                    return None
                found.append((vars(module), key))
        return found

    def give_data(self, data_of: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
        """Put data into what changed, in the place of tensors that have none.

        Args:
            data_of: gives the data of such a tensor; None if it is not known.
        """
        for _, module, _, now in self._changed():
            for key, seen in now.items():
                if seen is not None:
                    _holder(module, key)[key] = _with_data(seen.value, data_of, set())

    def hold(self, is_one: Callable[[Any], bool]) -> bool:
        """Whether a certain value is among them, or in what they hold.

        Args:
            is_one: whether a value is it.
        """
        left, met = [seen for _, _, values in self._before for seen in values.values()], set[int]()
        while left:
            seen = left.pop()
            if id(seen) not in met:
                met.add(id(seen))
                left += children_of(seen)
                if is_one(seen.value):
                    return True
        return False

    def holding(self, is_one: Callable[[torch.Tensor], bool]) -> set[str]:
        """The names of those that are others now, and hold certain tensors.

        Args:
            is_one: whether a tensor is one of these.
        """
        return {
            f"{path}.{key}"
            for path, _, _, now in self._changed()
            for key, seen in now.items()
            if any(map(is_one, tensors_in(seen, set())))
        }

    def write_tables(self, tables: Mapping[int, torch.Tensor | None]) -> None:
        """Write to the tables of the modules what a call writes there. Where that is not known, a module with such a
        table is as it was: the next call would write it again.

        Args:
            tables: see Origin.
        """
        for _, module, before, now in self._changed():
            if any(tables[id(table)] is None for table in _tables(module, tables)):
                _restore(module, before, now)
        with no_modes(), torch.no_grad():
            for table in (table for _, module, _ in self._before for table in _tables(module, tables)):
                if (data := tables[id(table)]) is not None:
                    self._written.append((table, copied(table)))
                    table.data.copy_(data)

    def are_caches(self, follows_from_state: Callable[[torch.Tensor], bool]) -> bool:
        """Whether all that changed in the modules are tensors that they have computed from their parameters in
        evaluation mode, and drop when they are trained again: the next call would find what it computes in a graph."""
        for _, module, before, now in self._changed():
            changed = [tensors_in(part, set()) for key in now for _, part in _changed_parts(before.get(key), now[key])]
            if module.training or not all(leaves and all(map(follows_from_state, leaves)) for leaves in changed):
                return False
            if not _drops(module, before, now.keys()):
                return False
        return True

    def may_mean_other(self, other: Attributes) -> bool:
        """Whether these and others, of the same modules, differ in more than the lengths of tables."""
        return any(
            _may_mean_other(now.get(key), before.get(key))
            for (_, _, now), (_, _, before) in zip(self._before, other._before, strict=True)
            for key in now.keys() | before.keys()
        )

    def restore_only(self, name: str) -> None:
        """Have one of the attributes be as it was, by its name."""
        for path, module, before, changed in self._changed():
            _restore(module, before, [key for key in changed if f"{path}.{key}" == name])

    def restore(self, besides: Collection[str] = ()) -> None:
        """Have the modules be as they were.

        Args:
            besides: the names of what stays as it is.
        """
        with no_modes(), torch.no_grad():
            while self._written:
                table, data = self._written.pop()
                table.data.copy_(data)
        for path, module, before, changed in self._changed():
            _restore(module, before, (key for key in changed if f"{path}.{key}" not in besides))

    def _changed(self) -> Iterator[tuple[str, torch.nn.Module, dict[str, Seen], dict[str, Seen | None]]]:
        """For each module that has others now: its path, what it had, and those that changed as they are now."""
        look = Look()
        compared: set[tuple[int, int]] = set()
        for path, module, before in self._before:
            now = _attributes(module, look, before)
            changed = {
                key: now.get(key)
                for key in sorted(before.keys() | now.keys())
                if not is_same(before.get(key), now.get(key), compared)
            }
            if changed:
                yield path, module, before, changed


def _tables(module: torch.nn.Module, tables: Mapping[int, Any]) -> list[torch.Tensor]:
    """Those of a module's tensors whose ids are among these."""
    own = (*vars(module).values(), *module._buffers.values())
    return [value for value in own if isinstance(value, torch.Tensor) and id(value) in tables]


def _drops(module: torch.nn.Module, before: dict[str, Seen], names: Iterable[str]) -> bool:
    """Whether a module's `train` has these attributes be as they were."""
    if type(module).train is torch.nn.Module.train:
        return False
    probe = copy.copy(module)
    probe._modules = {}
    try:
        probe.train()
    except Exception:  # it asks its parts
        return False
    now = _attributes(probe, Look())
    return all(is_same(before.get(key), now.get(key), set()) for key in names)


def _holder(module: torch.nn.Module, key: str) -> dict[str, Any]:
    """Where a module has an attribute."""
    holders: list[Any] = [holder for holder in (module._buffers, module._parameters) if key in holder]
    return holders[0] if holders else vars(module)


def _restore(module: torch.nn.Module, before: dict[str, Seen], names: Iterable[str]) -> None:
    for key in names:
        holder = _holder(module, key)
        if key in before:
            holder[key] = refilled(before[key], set())
        else:
            del holder[key]


def _attributes(module: torch.nn.Module, look: Look, before: dict[str, Seen] | None = None) -> dict[str, Seen]:
    """The attributes of a module. A graph knows a parameter or persistent buffer that was a tensor before and still is,
    whichever that is."""
    found = {key: look.at(value) for key, value in vars(module).items() if key not in KNOWN}
    for key, value in {**module._parameters, **module._buffers}.items():
        known = None if before is None or key in module._non_persistent_buffers_set else before.get(key)
        is_known = known is not None and isinstance(known.value, torch.Tensor) and isinstance(value, torch.Tensor)
        found[key] = known if known is not None and is_known else look.at(value)
    return found


def _file(kind: type) -> str:
    """That of a class; PyTorch's for one that has none."""
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or torch.__file__


def _changed_parts(before: Seen | None, now: Seen | None) -> list[tuple[Seen | None, Seen | None]]:
    """Of an object the attributes that changed, as of a module; else the value, as it was and as it is."""
    if before is None or now is None or before.value is not now.value or isinstance(before.value, CONTAINERS):
        return [(before, now)]
    if not isinstance(before.held, dict) or not isinstance(now.held, dict):
        return [(before, now)]
    keys = [*dict.fromkeys([*before.held, *now.held])]
    parts = [(before.held.get(key), now.held.get(key)) for key in keys]
    return [(one, other) for one, other in parts if not is_same(one, other, set())]


def _are_same(before: Sequence[torch.Tensor], now: Sequence[torch.Tensor]) -> bool:
    return len(before) == len(now) and all(one is other for one, other in zip(before, now, strict=True))


def _may_mean_other(one: Seen | None, other: Seen | None) -> bool:
    """Whether one value may mean something else than another one, or than none. A table that only one has does not."""
    left, done = [(one, other)], set[tuple[int, int]]()
    while left:
        pair = left.pop()
        if pair[0] is None or pair[1] is None:
            if not any(tensors_in(seen, set()) for seen in pair):
                return True
            continue
        is_whole = pair[0].value is pair[1].value and pair[0].held is None and pair[1].held is None
        if is_whole or (id(pair[0]), id(pair[1])) in done:
            continue
        done.add((id(pair[0]), id(pair[1])))
        own, others = pair[0].value, pair[1].value
        if isinstance(own, torch.Tensor) and isinstance(others, torch.Tensor):
            if not _is_beginning(own, others):
                return True
        elif isinstance(pair[0].held, dict) and isinstance(pair[1].held, dict):
            left += [
                (pair[0].held.get(key), pair[1].held.get(key)) for key in pair[0].held.keys() | pair[1].held.keys()
            ]
        elif not is_same(*pair, set()):
            return True
    return False


def _is_beginning(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether one of two tensors is a table by which the other begins. One that has no data is none."""
    if isinstance(one, FakeTensor) or isinstance(other, FakeTensor):
        return False
    if one.dim() != other.dim() or one.dtype != other.dtype or one.device != other.device:
        return False
    both = tuple(slice(min(sizes)) for sizes in zip(one.shape, other.shape, strict=True))
    with no_modes():
        return torch.equal(one[both], other[both])


def _with_data(value: Any, data_of: Callable[[torch.Tensor], torch.Tensor | None], done: set[int]) -> Any:
    """The value with data in the place of tensors that have none."""
    if isinstance(value, FakeTensor):
        data = data_of(value)
        return value if data is None else data
    items = None if isinstance(value, (*WHOLE, functools.partial)) or id(value) in done else items_of(value)
    if items is None or len(items) > LARGE:
        return value
    done.add(id(value))
    filled = {key: _with_data(item, data_of, done) for key, item in items.items()}
    if all(filled[key] is item for key, item in items.items()):
        return value
    if isinstance(value, tuple):
        return type(value)(*filled.values()) if hasattr(value, "_fields") else type(value)(filled.values())
    refill(value, filled)
    return value


def _holders_of_tensors(values: Iterable[Seen]) -> set[int]:
    """The ids of what is or holds a tensor among values and what they hold."""
    holders: dict[int, list[Seen]] = {}
    met: dict[int, Seen] = {}
    left = [*values]
    while left:
        one = left.pop()
        if id(one) not in met:
            met[id(one)] = one
            left += (children := children_of(one))
            for child in children:
                holders.setdefault(id(child), []).append(one)
    found: set[int] = set()
    left = [one for one in met.values() if isinstance(one.value, torch.Tensor)]
    while left:
        one = left.pop()
        if id(one) not in found:
            found.add(id(one))
            left += holders.get(id(one), [])
    return found


def _without_tensors(items: dict[Any, Seen], holders: set[int], done: set[int]) -> dict[Any, Seen]:
    """The items, where a container has lost what is or holds a tensor: a table of tensors is an empty one."""
    for seen in items.values():
        if isinstance(seen.held, dict) and id(seen) not in done:
            done.add(id(seen))
            plain = {key: item for key, item in seen.held.items() if id(item) not in holders}
            seen.held = _without_tensors(plain, holders, done)
    return {key: seen for key, seen in items.items() if not isinstance(seen.value, torch.Tensor)}
