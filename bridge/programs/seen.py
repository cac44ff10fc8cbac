"""What values hold at some time: containers, arrays, iterators, generators of random numbers, objects, and what is in
these. Later ones are compared with that, and values get back what they held."""

from __future__ import annotations

import array
import functools
import operator
import random
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import (
    BuiltinFunctionType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

import mindspore as ms
import numpy as np
import torch

from bridge.programs.kept_elsewhere import DEEP, LARGE, MOST, held_by
from bridge.programs.written_down import is_of_package, slots_of

PLAIN = (bool, int, float, complex, str, bytes)
CONTAINERS = (dict, list, tuple, deque)
LEADING = (weakref.ref, MappingProxyType)  # to what others hold
ARRAYS = (array.array, bytearray)  # Python's own
_LARGEST = 100_000  # of a large container only which objects it holds is looked at, and of a larger one nothing
# What is not looked into: bridge/programs/kept_elsewhere.py knows functions, classes and files.
WHOLE = (
    *PLAIN, type(None), torch.Tensor, torch.nn.Module, ms.Tensor, ms.nn.Cell, type, FunctionType, ModuleType,
)  # fmt: skip
GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)


@dataclass
class Seen:
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


class Objects(tuple[Any, ...]):
    """What a large container holds."""

    __slots__ = ()

    def are(self, others: Any) -> bool:
        """Whether others are the same objects."""
        return type(others) is Objects and len(self) == len(others) and all(map(operator.is_, self, others))


class Look:
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
        self.tensors: list[Seen] = []
        self._found: dict[int, Seen] = {}
        self._left = MOST

    def found(self) -> Iterable[Seen]:
        """What it has looked into."""
        return self._found.values()

    def at(self, value: Any, depth: int = 0) -> Seen:
        if isinstance(value, WHOLE):
            if isinstance(value, torch.nn.Module):
                self.modules.append(value)
            elif isinstance(value, FunctionType):
                self.functions.append(value)
            elif isinstance(value, type):
                self.classes.append(value)
            seen = Seen(value)
            if isinstance(value, torch.Tensor):
                self.tensors.append(seen)
            return seen
        if id(value) in self._found:
            return self._found[id(value)]
        found = self._found[id(value)] = Seen(value, None, type(value))
        if isinstance(value, (set, np.ndarray)):
            found.held = value.copy() if _size(value) <= LARGE else None
            return found
        if isinstance(value, ARRAYS):
            found.held = Seen(_bytes(value)) if len(value) <= LARGE else None
            return found
        if isinstance(value, GENERATORS):
            found.held = self.at(_state(value), depth + 1)
            return found
        if isinstance(value, Iterator) and depth < DEEP and not hasattr(value, "__dict__"):
            found.held = self.at(_position(value), depth + 1)
            return found
        items = items_of(value)
        if items is not None and depth < DEEP and len(items) <= min(LARGE, self._left):
            self._left -= len(items)
            found.held = {key: self.at(item, depth + 1) for key, item in items.items()}
        elif items is not None and isinstance(value, (dict, list)) and LARGE < len(items) <= _LARGEST:
            found.held = Objects([*items, *items.values()] if isinstance(value, dict) else items.values())
        return found


def has_slots(value: Any) -> bool:
    """Whether an object of a user's class has attributes that no dictionary holds."""
    return not isinstance(value, WHOLE) and bool(slots_of(value)) and not is_of_package(type(value).__module__)


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


def items_of(value: Any) -> dict[Any, Any] | None:
    """What a container or an object holds; None of anything else."""
    if isinstance(value, dict):
        return held_by(value)
    if isinstance(value, CONTAINERS):
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
        return items_of(referent) if is_method else {"referent": referent}
    if isinstance(value, BuiltinFunctionType):
        return {"__self__": value.__self__} if isinstance(value.__self__, (*CONTAINERS, *GENERATORS)) else None
    own = getattr(value, "__dict__", None)
    return {**slots_of(value), **(own or {})} if has_slots(value) else own


def _position(iterator: Iterator[Any]) -> Any:
    """What tells where an iterator stands: what it would be copied from; of a generator, its variables."""
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        return None if frame is None else [frame.f_lasti, dict(frame.f_locals)]
    try:
        return iterator.__reduce__()
    except Exception:  # whatever somebody's iterators raise
        return None


def children_of(seen: Seen | None) -> list[Seen]:
    return [*seen.held.values()] if seen is not None and isinstance(seen.held, dict) else []


def tensors_in(seen: Seen | None, met: set[int]) -> list[torch.Tensor]:
    """The tensors in a value, but those in what was met before, by its id."""
    found: list[torch.Tensor] = []
    left = [seen]
    while left:
        one = left.pop()
        if one is not None and id(one) not in met:
            met.add(id(one))
            left += children_of(one)
            if isinstance(one.value, torch.Tensor):
                found.append(one.value)
    return found


def is_same(before: Seen | None, now: Seen | None, compared: set[tuple[int, int]]) -> bool:
    """Whether two values are one, plain and equal, or hold such values. What is in `compared` is known elsewhere."""
    if before is None or now is None:
        return before is now
    if before.held is None or now.held is None:
        one, other = before.value, now.value
        return one is other or (type(one) is type(other) and isinstance(one, PLAIN) and _are_equal(one, other))
    if before.kind is not now.kind:
        return False
    if (id(before), id(now)) in compared:
        return True
    compared.add((id(before), id(now)))
    if isinstance(before.held, Seen):
        return is_same(before.held, now.held, compared)
    if isinstance(before.held, np.ndarray):
        return before.held.dtype == now.held.dtype and before.held.tobytes() == now.held.tobytes()
    if isinstance(before.held, set):
        return bool(before.held == now.held)
    if isinstance(before.held, Objects):
        return before.held.are(now.held)
    if isinstance(before.value, dict) and [*before.held] != [*now.held]:
        return False
    return before.held.keys() == now.held.keys() and all(
        is_same(item, now.held[key], compared) for key, item in before.held.items()
    )


def _are_equal(one: Any, other: Any) -> bool:
    """Of plain values: -0.0 is another number than 0.0, and NaN is itself."""
    return repr(one) == repr(other) if isinstance(one, (float, complex)) else bool(one == other)


def refilled(seen: Seen, done: set[int]) -> Any:
    """The value, with what it held."""
    value, held = seen.value, seen.held
    if isinstance(value, GENERATORS) and held is not None:
        _put_back(value, held.value)
        return value
    if isinstance(value, ARRAYS) and held is not None:
        value[:] = array.array(value.typecode, held.value[1:]) if isinstance(value, array.array) else held.value
        return value
    if seen.kind is not None and type(value) is not seen.kind:
        value.__class__ = seen.kind
    if held is None or isinstance(held, Seen) or id(seen) in done:  # an iterator does not go back
        return value
    done.add(id(seen))
    if isinstance(held, np.ndarray):
        if value.flags.writeable:
            value[...] = held
    elif isinstance(held, set):
        value.clear()
        value.update(held)
    elif not isinstance(held, Objects):
        items = {key: refilled(item, done) for key, item in held.items()}
        now = items_of(value) or {}
        if [*now] != [*items] or any(now[key] is not item for key, item in items.items()):
            refill(value, items)
    return value


def refill(value: Any, items: dict[Any, Any]) -> None:
    if isinstance(value, LEADING):  # what they lead to is as it was
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
    elif has_slots(value):
        for key, item in items.items():
            setattr(value, key, item)
    else:
        vars(value).clear()
        vars(value).update(items)
