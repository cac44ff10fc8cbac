"""What a graph takes for constant: the attributes, parts and hooks of a module, and what its code finds by name."""

from __future__ import annotations

import argparse
import functools
import inspect
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from bridge.programs.attributes import KNOWN, registers
from bridge.programs.counters import Root
from bridge.programs.named_values import places, shadows
from bridge.programs.seen import ARRAYS, CONTAINERS, LEADING, PLAIN, Look, Objects, Seen, has_slots, is_same, items_of
from bridge.programs.unchanged import Watched
from bridge.programs.written_down import is_of_package, slots_of

_MADE_BY_PYTHON = 1 << 9  # the flag of classes that a class statement makes
# Of what code finds by name, what these hold counts, and objects of the user's classes; of others, which they are.
_NAMED = (
    *PLAIN, *CONTAINERS, *LEADING, set, np.ndarray, type(None), torch.Tensor, torch.nn.Module, SimpleNamespace,
    argparse.Namespace, functools.partial,
)  # fmt: skip
_OF_LAYERS = vars(torch.nn.Module()).keys()


class Settings:
    """What a graph takes for constant, as it is now: the attributes, classes, parts and hooks of a module and of its
    parts; what the user's code of these finds by name; and modules that are in any of this without being parts, with
    their parameters.

    Attributes:
        namespaces: the attributes of the module and its parts.
        containers: the other dictionaries and lists that these are in.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        look = Look()
        self.namespaces: list[dict[str, Any]] = []
        self.containers: list[Any] = []
        self._storages: list[StorageWeakRef] = []
        self._noted: list[Seen] = []
        self._values: dict[tuple[str, str], Seen] = {}
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
                self._values[place.where, place.name] = Seen(value)
        for kind in {type(part) for _, part in parts.values() if is_of_package(type(part).__module__)}:
            forward = inspect.getattr_static(kind, "forward")
            if isinstance(forward, FunctionType):  # TorchScript's are no functions
                self._names.append((functools.partial(getattr, kind), "forward", forward))
                self._values[f"{kind.__module__}.{kind.__qualname__}", "forward"] = Seen(forward)
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
        looked = [seen.value for seen in look.found() if isinstance(seen.held, (dict, Objects))]
        self.containers += [
            value if isinstance(value, (dict, list)) else getattr(value, "__dict__", ()) for value in looked
        ]
        self._copied = [seen for seen in look.found() if _is_seen_by_copies(seen)]
        changeable = [value for value in (*looked, *(part for _, part in parts.values())) if _may_change_class(value)]
        self._changeable, self._classes = changeable, [*map(type, changeable)]

    def _add(self, where: str, part: torch.nn.Module, settings: Iterable[tuple[str, Any]], look: Look) -> None:
        self.namespaces.append(vars(part))
        self.containers += [*registers(part), part._buffers]
        for name, value in settings:
            self._note(where, name, value, look)

    def _note(self, where: str, name: str, value: Any, look: Look) -> None:
        self._values[where, name] = look.at(value)

    def _note_data(self, seen: Seen, own: set[int]) -> None:
        tensor = seen.value
        if id(tensor) in own or is_lazy(tensor) or isinstance(tensor, FakeTensor) or tensor.is_inference():
            return
        version, storage, address = data_of(tensor)
        seen.held = {
            "tensor": Seen(tensor), "form": Seen(str(_form_of(tensor))), "version": Seen(version),
            "storage": Seen(storage), "address": Seen(address),
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
        return {name for name in names if not is_same(before._values.get(name), self._values.get(name), set())}

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


def _is_seen_by_copies(seen: Seen) -> bool:
    """Whether somebody may change what a value holds where the containers of Settings do not show it."""
    value = seen.value
    is_ordered_elsewhere = isinstance(value, OrderedDict) and isinstance(seen.held, dict) and len(seen.held) > 1
    is_copied = isinstance(seen.held, (np.ndarray, set)) or isinstance(value, (*ARRAYS, *LEADING, deque))
    return is_copied or is_ordered_elsewhere or has_slots(value)


def _may_change_class(value: Any) -> bool:
    """Whether a value may become one of another class: Python's own cannot."""
    return bool(type(value).__flags__ & _MADE_BY_PYTHON)


def _is_as_it_was(seen: Seen) -> bool:
    """Whether an array or set holds the same, or an object the same objects."""
    own = seen.value
    if not isinstance(seen.held, dict):  # None is what lay too deep
        return seen.held is None or is_same(seen, Look().at(own), set())
    has_items = isinstance(own, (*CONTAINERS, *LEADING))
    now = items_of(own) if has_items else {**slots_of(own), **getattr(own, "__dict__", {})}
    return (
        now is not None
        and [*now] == [*seen.held]
        and all(held.value is now[key] or is_same(held, Seen(now[key]), set()) for key, held in seen.held.items())
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


def _settings(part: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Those of a module alone, by their names."""
    yield "__class__", type(part)
    yield from part._modules.items()
    for name, value in vars(part).items():
        if name not in KNOWN:
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
