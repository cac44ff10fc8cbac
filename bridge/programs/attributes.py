"""What a module keeps for its next call elsewhere than in parameters and persistent buffers. A graph is captured once,
and would go on with what stood there at that time."""

from __future__ import annotations

import argparse
import array
import copy
import enum
import functools
import inspect
import itertools
import operator
import random
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import (
    BuiltinFunctionType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import mindspore as ms
import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from bridge.programs.calls import no_modes
from bridge.programs.counters import Root
from bridge.programs.kept_elsewhere import DEEP, LARGE, MOST, held_by, is_own
from bridge.programs.named_values import places, shadows
from bridge.programs.stand_ins import Place
from bridge.programs.unchanged import Watched
from bridge.programs.values import copied
from bridge.programs.written_down import is_of_package, slots_of

_MADE_BY_PYTHON = 1 << 9  # the flag of classes that a class statement makes
_PLAIN = (bool, int, float, complex, str, bytes)
_CONTAINERS = (dict, list, tuple, deque)
_ASKED_FOR = (bool, type(None), type(Ellipsis), type(NotImplemented), enum.Enum, type, FunctionType)
_LEADING = (weakref.ref, MappingProxyType)  # to what others hold
_ARRAYS = (array.array, bytearray)  # Python's own
_LARGEST = 100_000  # of a large container only which objects it holds is looked at, and of a larger one nothing
# What is not looked into: bridge/programs/kept_elsewhere.py knows functions, classes and files.
_WHOLE = (
    *_PLAIN, type(None), torch.Tensor, torch.nn.Module, ms.Tensor, ms.nn.Cell, type, FunctionType, ModuleType,
)  # fmt: skip
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)
# Of what a file has, these and objects of the user's classes.
_GLOBALS = (*_PLAIN, *_CONTAINERS, *_GENERATORS, set, np.ndarray, SimpleNamespace, torch.Tensor)
# Of what code finds by name, what these hold counts, and objects of the user's classes; of others, which they are.
_NAMED = (
    *_PLAIN, *_CONTAINERS, *_LEADING, set, np.ndarray, type(None), torch.Tensor, torch.nn.Module, SimpleNamespace,
    argparse.Namespace, functools.partial,
)  # fmt: skip
_OF_LAYERS = vars(torch.nn.Module()).keys()
# The dictionaries that a graph knows, and the mode, which belongs to the plan.
_KNOWN = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"}


@dataclass
class _Seen:
    """A value at some time.

    Args:
        value: the value.
        held: what it held, by position, key or attribute; of a set or an array a copy; of Python's own arrays the
            bytes; of an iterator where it stood; of a generator of random numbers its state; of a large container the
            objects; None if that is not known.
        kind: its class, if it was looked into.
    """

    value: Any
    held: Any = None
    kind: Any = None


class _Objects(tuple[Any, ...]):
    """What a large container holds."""

    __slots__ = ()

    def are(self, others: Any) -> bool:
        """Whether others are the same objects."""
        return type(others) is _Objects and len(self) == len(others) and all(map(operator.is_, self, others))


class _Look:
    """Looks into values: containers, arrays and objects.

    Attributes:
        modules: PyTorch's that it has met.
        functions: those that it has met.
        tensors: those that it has met.
        classes: those that it has met.
    """

    def __init__(self) -> None:
        self.modules: list[torch.nn.Module] = []
        self.classes: list[type] = []
        self.functions: list[FunctionType] = []
        self.tensors: list[_Seen] = []
        self._found: dict[int, _Seen] = {}
        self._left = MOST

    def found(self) -> Iterable[_Seen]:
        """What it has looked into."""
        return self._found.values()

    def at(self, value: Any, depth: int = 0) -> _Seen:
        if isinstance(value, _WHOLE):
            if isinstance(value, torch.nn.Module):
                self.modules.append(value)
            elif isinstance(value, FunctionType):
                self.functions.append(value)
            elif isinstance(value, type):
                self.classes.append(value)
            seen = _Seen(value)
            if isinstance(value, torch.Tensor):
                self.tensors.append(seen)
            return seen
        if id(value) in self._found:
            return self._found[id(value)]
        found = self._found[id(value)] = _Seen(value, None, type(value))
        if isinstance(value, (set, np.ndarray)):
            found.held = value.copy() if _size(value) <= LARGE else None
            return found
        if isinstance(value, _ARRAYS):
            found.held = _Seen(_bytes(value)) if len(value) <= LARGE else None
            return found
        if isinstance(value, _GENERATORS):
            found.held = self.at(_state(value), depth + 1)
            return found
        if isinstance(value, Iterator) and depth < DEEP and not hasattr(value, "__dict__"):
            found.held = self.at(_position(value), depth + 1)
            return found
        items = _items(value)
        if items is not None and depth < DEEP and len(items) <= min(LARGE, self._left):
            self._left -= len(items)
            found.held = {key: self.at(item, depth + 1) for key, item in items.items()}
        elif items is not None and isinstance(value, (dict, list)) and LARGE < len(items) <= _LARGEST:
            found.held = _Objects([*items, *items.values()] if isinstance(value, dict) else items.values())
        return found


class _Registered:
    """The parameters and parts that a module has registered.

    Attributes:
        path: the module's.
        training: the mode in which it is captured.
    """

    def __init__(self, path: str, module: torch.nn.Module) -> None:
        self.path, self._module = path, module
        self._places = [(place, dict(place)) for place in _registers(module)]
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


def _registers(module: torch.nn.Module) -> list[dict[str, Any]]:
    places = module._parameters, module._modules
    return [place for place in places if isinstance(place, dict)]  # TorchScript's are C++'s


class Attributes:
    """The attributes of modules and of their parts, and what their files and classes keep, as they are now."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        look = _Look()
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
        plain = [name for name in now if name in before and not _is_same(before[name], now[name], compared)]
        names = dict.fromkeys([*self._tensors, *tensors])
        others = [name for name in names if not _are_same(self._tensors.get(name, []), tensors.get(name, []))]
        return list(dict.fromkeys([*plain, *others]))

    def _globals_now(self) -> tuple[dict[str, _Seen], dict[str, list[torch.Tensor]]]:
        """The numbers, texts, containers, generators and own objects in the files and classes of the modules, without
        tensors; and the tensors."""
        found = {root.name: root.seen for root in self._roots_elsewhere()}
        met = set[int]()  # a tensor that several names lead to is the first one's
        tensors = {name: _tensors(seen, met) for name, seen in found.items()}
        return _without_tensors(found, _holders_of_tensors(found.values()), set()), tensors

    def roots_then(self) -> list[Root]:
        """What the modules, their files and their classes had, by names."""
        own = [Root(f"{path}.{key}", None, key, seen) for path, _, has in self._before for key, seen in has.items()]
        return [*own, *(Root(name, None, name, seen) for name, seen in self._globals.items())]

    def roots(self) -> list[Root]:
        """What they have now, by names."""
        look = _Look()
        own = [
            Root(f"{path}.{key}", _holder(module, key), key, seen)
            for path, module, _ in self._before
            for key, seen in _attributes(module, look).items()
        ]
        return [*own, *self._roots_elsewhere()]

    def _roots_elsewhere(self) -> list[Root]:
        """The numbers, texts, containers, generators, own objects and tensors in the files and classes."""
        look = _Look()
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
                left += _children(seen)
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
            if any(map(is_one, _tensors(seen, set())))
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
            changed = [_tensors(part, set()) for key in now for _, part in _changed_parts(before.get(key), now[key])]
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

    def _changed(self) -> Iterator[tuple[str, torch.nn.Module, dict[str, _Seen], dict[str, _Seen | None]]]:
        """For each module that has others now: its path, what it had, and those that changed as they are now."""
        look = _Look()
        compared: set[tuple[int, int]] = set()
        for path, module, before in self._before:
            now = _attributes(module, look, before)
            changed = {
                key: now.get(key)
                for key in sorted(before.keys() | now.keys())
                if not _is_same(before.get(key), now.get(key), compared)
            }
            if changed:
                yield path, module, before, changed


class Settings:
    """What a graph takes for constant, as it is now: the attributes, classes, parts and hooks of a module and of its
    parts; what the user's code of these finds by name; and modules that are in any of this without being parts, with
    their parameters.

    Attributes:
        namespaces: the attributes of the module and its parts.
        containers: the other dictionaries and lists that these are in.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        look = _Look()
        self.namespaces: list[dict[str, Any]] = []
        self.containers: list[Any] = []
        self._storages: list[StorageWeakRef] = []
        self._noted: list[_Seen] = []
        self._values: dict[tuple[str, str], _Seen] = {}
        self._names: list[tuple[Callable[[str], Any], str, Any]] = []
        root = type(module).__name__
        parts = {id(part): (f"{root}.{path}".rstrip("."), part) for path, part in module.named_modules()}
        for where, part in parts.values():
            self._add(where, part, _settings(part), look)
        objects = (*(part for _, part in parts.values()), *(seen.value for seen in look.found()))
        kinds = {*map(type, objects), *look.classes}
        classes = {kind for one in kinds for kind in one.__mro__}
        for place in (*places([*classes, *look.functions]), *itertools.chain.from_iterable(map(shadows, kinds))):
            value = place.get(place.name)
            self._names.append((place.get, place.name, value))
            if isinstance(value, _NAMED) or not is_of_package(type(value).__module__):
                self._note(place.where, place.name, value, look)
            else:
                self._values[place.where, place.name] = _Seen(value)
        for kind in {type(part) for _, part in parts.values() if is_of_package(type(part).__module__)}:
            forward = inspect.getattr_static(kind, "forward")
            if isinstance(forward, FunctionType):  # TorchScript's are no functions
                self._names.append((functools.partial(getattr, kind), "forward", forward))
                self._values[f"{kind.__module__}.{kind.__qualname__}", "forward"] = _Seen(forward)
        while look.modules:
            hidden = look.modules.pop()
            for path, part in hidden.named_modules() if id(hidden) not in parts else ():
                if id(part) not in parts:
                    where = f"{root}'s {type(hidden).__name__}.{path}".rstrip(".")
                    parts[id(part)] = where, part
                    known = (*part._parameters.items(), *part._buffers.items())
                    self._add(where, part, (*_settings(part), ("training", part.training), *known), look)
                    self._names.append((vars(part).get, "training", part.training))
        own = {id(tensor) for part in module.modules() for tensor in _inputs(part)}
        for seen in look.tensors:
            self._note_data(seen, own)
        looked = [seen.value for seen in look.found() if isinstance(seen.held, (dict, _Objects))]
        self.containers += [
            value if isinstance(value, (dict, list)) else getattr(value, "__dict__", ()) for value in looked
        ]
        self._copied = [seen for seen in look.found() if _is_seen_by_copies(seen)]
        changeable = [value for value in (*looked, *(part for _, part in parts.values())) if _may_change_class(value)]
        self._changeable, self._classes = changeable, [*map(type, changeable)]

    def _add(self, where: str, part: torch.nn.Module, settings: Iterable[tuple[str, Any]], look: _Look) -> None:
        self.namespaces.append(vars(part))
        self.containers += [*_registers(part), part._buffers]
        for name, value in settings:
            self._note(where, name, value, look)

    def _note(self, where: str, name: str, value: Any, look: _Look) -> None:
        self._values[where, name] = look.at(value)

    def _note_data(self, seen: _Seen, own: set[int]) -> None:
        tensor = seen.value
        if id(tensor) in own or is_lazy(tensor) or isinstance(tensor, FakeTensor) or tensor.is_inference():
            return
        version, storage, address = data_of(tensor)
        seen.held = {
            "tensor": _Seen(tensor), "form": _Seen(str(_form_of(tensor))), "version": _Seen(version),
            "storage": _Seen(storage), "address": _Seen(address),
        }  # fmt: skip
        if storage:
            self._storages.append(StorageWeakRef(tensor.untyped_storage()))  # no other one is where it is from now on
        self._noted.append(seen)

    def leave_out_data(self, taken: Mapping[int, bool]) -> None:
        """Have the data of tensors be none that no program takes, and what is written to those that programs do not
        take for constant. Their shapes, strides, dtypes, and whether they require a gradient, stay.

        Args:
            taken: for the storages of those that programs take whether they take them for constant; else they are views
                of weights or buffers.
        """
        for seen in self._noted:
            held: Any = seen.held
            storage = held["storage"].value if "storage" in held else 0
            if storage and storage not in taken:
                left_out = ["version", "storage", "address"]
            else:
                left_out = ["version"] if storage and not taken[storage] else []
            for name in left_out:
                held.pop(name, None)

    def data(self) -> list[tuple[Any, ...]]:
        """What the tensors are, and the data of those whose data counts, as it is now."""
        return [_counted(seen.value, seen.held) for seen in self._noted]

    def name_among(self, tensors: set[int]) -> str:
        """The name of a tensor with one of these ids; empty if there is none."""
        return next(
            (f"{where}.{name}" for (where, name), seen in self._values.items() if id(seen.value) in tensors), ""
        )

    def are_in_place(self) -> bool:
        """Whether names find the same objects, these are of the same classes, and arrays and sets hold the same."""
        are_named = all(get(name) is value for get, name, value in self._names)
        return are_named and [*map(type, self._changeable)] == self._classes and all(map(_is_as_it_was, self._copied))

    def watched(self) -> Watched:
        """All that it asks whether these are in place and what `data` is, and the containers."""
        named: list[Any] = [(get, (name,), value) for get, name, value in self._names]
        if self._copied:
            named.append((self.are_in_place, (), True))
        if self._noted:
            data = self.data()
            named.append((lambda: self.data() == data, (), True))
        return Watched([*self.namespaces, *self.containers], self._changeable, [], named)

    def others(self, before: Settings) -> set[tuple[str, str]]:
        """Those that are not as they were before, by the paths of the parts and the names there."""
        names = self._values.keys() | before._values.keys()
        return {name for name in names if not _is_same(before._values.get(name), self._values.get(name), set())}

    def roots(self, names: Iterable[tuple[str, str]], parts: Mapping[str, torch.nn.Module]) -> list[Root]:
        """Those of these that are attributes of parts."""
        own = ((where, name) for where, name in names if where in parts and (where, name) in self._values)
        return [Root(f"{where}.{name}", vars(parts[where]), name, self._values[where, name]) for where, name in own]

    def take(self, names: Iterable[tuple[str, str]], others: Settings) -> None:
        """Have these be what they are in others."""
        self._values |= {name: others._values[name] for name in names if name in others._values}

    def leave_out(self, names: Iterable[tuple[str, str]]) -> None:
        """Have these be none."""
        for name in names:
            self._values.pop(name, None)


def _is_seen_by_copies(seen: _Seen) -> bool:
    """Whether somebody may change what a value holds where the containers of Settings do not show it."""
    value = seen.value
    is_ordered_elsewhere = isinstance(value, OrderedDict) and isinstance(seen.held, dict) and len(seen.held) > 1
    is_copied = isinstance(seen.held, (np.ndarray, set)) or isinstance(value, (*_ARRAYS, *_LEADING, deque))
    return is_copied or is_ordered_elsewhere or _has_slots(value)


def _may_change_class(value: Any) -> bool:
    """Whether a value may become one of another class: Python's own cannot."""
    return bool(type(value).__flags__ & _MADE_BY_PYTHON)


def _is_as_it_was(seen: _Seen) -> bool:
    """Whether an array or set holds the same, or an object the same objects."""
    own = seen.value
    if not isinstance(seen.held, dict):  # None is what lay too deep
        return seen.held is None or _is_same(seen, _Look().at(own), set())
    has_items = isinstance(own, (*_CONTAINERS, *_LEADING))
    now = _items(own) if has_items else {**slots_of(own), **getattr(own, "__dict__", {})}
    return (
        now is not None
        and [*now] == [*seen.held]
        and all(held.value is now[key] or _is_same(held, _Seen(now[key]), set()) for key, held in seen.held.items())
    )


def data_of(tensor: torch.Tensor) -> tuple[int, int, int]:
    """What changes where PyTorch writes to a tensor, or gives it other data, for which it may use memory again."""
    if tensor.layout is not torch.strided:
        return tensor._version, 0, 0
    return tensor._version, tensor.untyped_storage()._cdata, tensor.data_ptr()


def _form_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What code may ask a tensor besides its data."""
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    return tuple(tensor.shape), strides, tensor.dtype, tensor.requires_grad


def _counted(tensor: torch.Tensor, held: Any) -> tuple[Any, ...]:
    """A tensor's form, and what counts of its data (see Settings.leave_out_data)."""
    data = data_of(tensor) if "storage" in held else ()
    return *_form_of(tensor), *data[0 if "version" in held else 1 :]


def _has_slots(value: Any) -> bool:
    """Whether an object of a user's class has attributes that no dictionary holds."""
    return not isinstance(value, _WHOLE) and bool(slots_of(value)) and not is_of_package(type(value).__module__)


# By parts, the names of buffers that are inputs of all programs that have the part.
_input_buffers = WeakIdKeyDictionary()


def is_layers_own(name: str) -> bool:
    """Whether an attribute, by its path, is one that PyTorch's modules have themselves, as their hooks are."""
    return name.rpartition(".")[2] in _OF_LAYERS


def note_inputs(part: torch.nn.Module, buffers: set[str]) -> None:
    """Know these buffers of a module for inputs of a program. What a graph has of the others is a constant."""
    _input_buffers[part] = buffers & _input_buffers.get(part, buffers)


def _inputs(part: torch.nn.Module) -> Iterator[torch.Tensor]:
    """The tensors of a module alone that a graph has as inputs."""
    known = _input_buffers.get(part, ())
    buffers = [buffer for name, buffer in part._buffers.items() if name in known]
    yield from (tensor for tensor in (*part._parameters.values(), *buffers) if tensor is not None)


def _tables(module: torch.nn.Module, tables: Mapping[int, Any]) -> list[torch.Tensor]:
    """Those of a module's tensors whose ids are among these."""
    own = (*vars(module).values(), *module._buffers.values())
    return [value for value in own if isinstance(value, torch.Tensor) and id(value) in tables]


def _settings(part: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Those of a module alone, by their names."""
    yield "__class__", type(part)
    yield from part._modules.items()
    for name, value in vars(part).items():
        if name not in _KNOWN:
            yield name, value
    for name in ("_parameters", "_buffers", "_modules"):
        yield name, tuple(getattr(part, name).keys())
    known = _input_buffers.get(part, ())
    for name, buffer in part._buffers.items():
        if name not in known:
            yield name, buffer
    for name, value in (*part._parameters.items(), *part._buffers.items()):
        if value is None:
            yield name, None


def _drops(module: torch.nn.Module, before: dict[str, _Seen], names: Iterable[str]) -> bool:
    """Whether a module's `train` has these attributes be as they were."""
    if type(module).train is torch.nn.Module.train:
        return False
    probe = copy.copy(module)
    probe._modules = {}
    try:
        probe.train()
    except Exception:  # it asks its parts
        return False
    now = _attributes(probe, _Look())
    return all(_is_same(before.get(key), now.get(key), set()) for key in names)


def _holder(module: torch.nn.Module, key: str) -> dict[str, Any]:
    """Where a module has an attribute."""
    holders: list[Any] = [holder for holder in (module._buffers, module._parameters) if key in holder]
    return holders[0] if holders else vars(module)


def _restore(module: torch.nn.Module, before: dict[str, _Seen], names: Iterable[str]) -> None:
    for key in names:
        holder = _holder(module, key)
        if key in before:
            holder[key] = _refilled(before[key], set())
        else:
            del holder[key]


def _attributes(module: torch.nn.Module, look: _Look, before: dict[str, _Seen] | None = None) -> dict[str, _Seen]:
    """The attributes of a module. A graph knows a parameter or persistent buffer that was a tensor before and still is,
    whichever that is."""
    found = {key: look.at(value) for key, value in vars(module).items() if key not in _KNOWN}
    for key, value in {**module._parameters, **module._buffers}.items():
        known = None if before is None or key in module._non_persistent_buffers_set else before.get(key)
        is_known = known is not None and isinstance(known.value, torch.Tensor) and isinstance(value, torch.Tensor)
        found[key] = known if known is not None and is_known else look.at(value)
    return found


def _file(kind: type) -> str:
    """That of a class; PyTorch's for one that has none."""
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or torch.__file__


def _state(generator: Any) -> Any:
    """Of a generator of random numbers."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state() if isinstance(generator, np.random.RandomState) else generator.bit_generator.state


def _put_back(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


def _bytes(values: array.array[Any] | bytearray) -> bytes:
    """What tells the values of one of Python's arrays from others."""
    return values.typecode.encode() + values.tobytes() if isinstance(values, array.array) else bytes(values)


def _size(value: Any) -> int:
    return value.size if isinstance(value, np.ndarray) else len(value)


def _items(value: Any) -> dict[Any, Any] | None:
    """What a container or an object holds; None of anything else."""
    if isinstance(value, dict):
        return held_by(value)
    if isinstance(value, _CONTAINERS):
        return dict(enumerate(value))
    if isinstance(value, functools.partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords, **vars(value)}
    if isinstance(value, MethodType):
        return {"__func__": value.__func__, "__self__": value.__self__}
    if isinstance(value, MappingProxyType):
        return dict(value)
    if isinstance(value, weakref.ref):
        referent = value()
        is_method = isinstance(value, weakref.WeakMethod) and referent is not None
        return _items(referent) if is_method else {"referent": referent}
    if isinstance(value, BuiltinFunctionType):
        return {"__self__": value.__self__} if isinstance(value.__self__, (*_CONTAINERS, *_GENERATORS)) else None
    own = getattr(value, "__dict__", None)
    return {**slots_of(value), **(own or {})} if _has_slots(value) else own


def _position(iterator: Iterator[Any]) -> Any:
    """What tells where an iterator stands: what it would be copied from; of a generator, its variables."""
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        return None if frame is None else [frame.f_lasti, dict(frame.f_locals)]
    try:
        return iterator.__reduce__()
    except Exception:  # whatever somebody's iterators raise
        return None


def _children(seen: _Seen | None) -> list[_Seen]:
    return [*seen.held.values()] if seen is not None and isinstance(seen.held, dict) else []


def _changed_parts(before: _Seen | None, now: _Seen | None) -> list[tuple[_Seen | None, _Seen | None]]:
    """Of an object the attributes that changed, as of a module; else the value, as it was and as it is."""
    if before is None or now is None or before.value is not now.value or isinstance(before.value, _CONTAINERS):
        return [(before, now)]
    if not isinstance(before.held, dict) or not isinstance(now.held, dict):
        return [(before, now)]
    keys = [*dict.fromkeys([*before.held, *now.held])]
    parts = [(before.held.get(key), now.held.get(key)) for key in keys]
    return [(one, other) for one, other in parts if not _is_same(one, other, set())]


def _are_same(before: Sequence[torch.Tensor], now: Sequence[torch.Tensor]) -> bool:
    return len(before) == len(now) and all(one is other for one, other in zip(before, now, strict=True))


def _may_mean_other(one: _Seen | None, other: _Seen | None) -> bool:
    """Whether one value may mean something else than another one, or than none. A table that only one has does not."""
    left, done = [(one, other)], set[tuple[int, int]]()
    while left:
        pair = left.pop()
        if pair[0] is None or pair[1] is None:
            if not any(_tensors(seen, set()) for seen in pair):
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
        elif not _is_same(*pair, set()):
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
    items = None if isinstance(value, (*_WHOLE, functools.partial)) or id(value) in done else _items(value)
    if items is None or len(items) > LARGE:
        return value
    done.add(id(value))
    filled = {key: _with_data(item, data_of, done) for key, item in items.items()}
    if all(filled[key] is item for key, item in items.items()):
        return value
    if isinstance(value, tuple):
        return type(value)(*filled.values()) if hasattr(value, "_fields") else type(value)(filled.values())
    _refill(value, filled)
    return value


def _tensors(seen: _Seen | None, met: set[int]) -> list[torch.Tensor]:
    """The tensors in a value, but those in what was met before, by its id."""
    found: list[torch.Tensor] = []
    left = [seen]
    while left:
        one = left.pop()
        if one is not None and id(one) not in met:
            met.add(id(one))
            left += _children(one)
            if isinstance(one.value, torch.Tensor):
                found.append(one.value)
    return found


def _holders_of_tensors(values: Iterable[_Seen]) -> set[int]:
    """The ids of what is or holds a tensor among values and what they hold."""
    holders: dict[int, list[_Seen]] = {}
    met: dict[int, _Seen] = {}
    left = [*values]
    while left:
        one = left.pop()
        if id(one) not in met:
            met[id(one)] = one
            left += (children := _children(one))
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


def _without_tensors(items: dict[Any, _Seen], holders: set[int], done: set[int]) -> dict[Any, _Seen]:
    """The items, where a container has lost what is or holds a tensor: a table of tensors is an empty one."""
    for seen in items.values():
        if isinstance(seen.held, dict) and id(seen) not in done:
            done.add(id(seen))
            plain = {key: item for key, item in seen.held.items() if id(item) not in holders}
            seen.held = _without_tensors(plain, holders, done)
    return {key: seen for key, seen in items.items() if not isinstance(seen.value, torch.Tensor)}


def _is_same(before: _Seen | None, now: _Seen | None, compared: set[tuple[int, int]]) -> bool:
    """Whether two values are one, plain and equal, or hold such values. What is in `compared` is known elsewhere."""
    if before is None or now is None:
        return before is now
    if before.held is None or now.held is None:
        one, other = before.value, now.value
        return one is other or (type(one) is type(other) and isinstance(one, _PLAIN) and _are_equal(one, other))
    if before.kind is not now.kind:
        return False
    if (id(before), id(now)) in compared:
        return True
    compared.add((id(before), id(now)))
    if isinstance(before.held, _Seen):
        return _is_same(before.held, now.held, compared)
    if isinstance(before.held, np.ndarray):
        return before.held.dtype == now.held.dtype and before.held.tobytes() == now.held.tobytes()
    if isinstance(before.held, set):
        return bool(before.held == now.held)
    if isinstance(before.held, _Objects):
        return before.held.are(now.held)
    if isinstance(before.value, dict) and [*before.held] != [*now.held]:
        return False
    return before.held.keys() == now.held.keys() and all(
        _is_same(item, now.held[key], compared) for key, item in before.held.items()
    )


def _are_equal(one: Any, other: Any) -> bool:
    """Of plain values: -0.0 is another number than 0.0, and NaN is itself."""
    return repr(one) == repr(other) if isinstance(one, (float, complex)) else bool(one == other)


def _refilled(seen: _Seen, done: set[int]) -> Any:
    """The value, with what it held."""
    value, held = seen.value, seen.held
    if isinstance(value, _GENERATORS) and held is not None:
        _put_back(value, held.value)
        return value
    if isinstance(value, _ARRAYS) and held is not None:
        value[:] = array.array(value.typecode, held.value[1:]) if isinstance(value, array.array) else held.value
        return value
    if seen.kind is not None and type(value) is not seen.kind:
        value.__class__ = seen.kind
    if held is None or isinstance(held, _Seen) or id(seen) in done:  # an iterator does not go back
        return value
    done.add(id(seen))
    if isinstance(held, np.ndarray):
        if value.flags.writeable:
            value[...] = held
    elif isinstance(held, set):
        value.clear()
        value.update(held)
    elif not isinstance(held, _Objects):
        items = {key: _refilled(item, done) for key, item in held.items()}
        now = _items(value) or {}
        if [*now] != [*items] or any(now[key] is not item for key, item in items.items()):
            _refill(value, items)
    return value


def _refill(value: Any, items: dict[Any, Any]) -> None:
    if isinstance(value, _LEADING):  # what they lead to is as it was
        return
    if isinstance(value, dict):
        kind = OrderedDict if isinstance(value, OrderedDict) else dict
        kind.clear(value)
        kind.update(value, items)
    elif isinstance(value, list):
        value[:] = items.values()
    elif isinstance(value, deque):
        value.clear()
        value.extend(items.values())
    elif _has_slots(value):
        for key, item in items.items():
            setattr(value, key, item)
    else:
        vars(value).clear()
        vars(value).update(items)
