"""What stands for ordinary objects, classes and files inside a fused program: what they have there are twins."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterator
from enum import Enum
from types import (
    BuiltinMethodType,
    FunctionType,
    MappingProxyType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import mindspore as ms
import numpy as np
import torch

from bridge.programs.written_down import PACKAGES, TellsItself, attributes, is_users_function

_FRAMEWORKS = ("bridge", "mindspore", "torch")
# What stays as it is, also of a class of the user's.
_WHOLE = (
    int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset, np.ndarray, np.generic, torch.Tensor,
    torch.nn.Module, ms.Tensor, ms.nn.Cell, ms.ops.Primitive, TellsItself, Enum, BaseException, FunctionType,
)  # fmt: skip
# Methods that say nothing about what an object is for.
_QUIET = frozenset(("__init__", "__new__", "__post_init__", "__repr__", "__str__", "__eq__", "__hash__"))
# Code with these names may find any attribute.
_FIND_ANY = frozenset(("getattr", "vars", "__dict__", "__getattribute__", "attrgetter"))
# Special methods that a twin has of its own, or not at all.
_OWN = frozenset((
    "__new__", "__init__", "__init_subclass__", "__class__", "__class_getitem__", "__getattribute__", "__getattr__",
    "__setattr__", "__delattr__", "__subclasshook__", "__del__", "__reduce__", "__reduce_ex__", "__getstate__",
    "__setstate__", "__eq__", "__hash__", "__bases__", "__prepare__", "__sizeof__", "__dir__", "__set_name__",
))  # fmt: skip


def is_object(value: Any) -> bool:
    """Whether a value is an object, a class or a file whose attributes may be other things inside a program."""
    if isinstance(value, ModuleType):
        return is_users_module(value)
    if isinstance(value, type):
        return not issubclass(value, _WHOLE) and not any(map(_is_of_framework, value.__mro__)) and _is_users(value)
    if isinstance(value, (SimpleNamespace, argparse.Namespace)):
        return True
    kind = type(value)
    return not isinstance(value, _WHOLE) and not _is_of_framework(kind) and not _is_of_python(kind)


def leads_to(value: Any) -> list[Any] | None:
    """What an object has; None of one that is another one inside a program, whatever it has: a file, and one with code
    of the user's."""
    if isinstance(value, ModuleType):
        return None
    found = []
    for name, member in members(value if isinstance(value, type) else type(value)):
        is_for_class = not isinstance(value, type) or isinstance(member, (staticmethod, classmethod))
        if name not in _QUIET and is_for_class and any(map(is_users_function, functions_of(member))):
            return None
        if not isinstance(member, FunctionType):
            found.append(member)
    return found if isinstance(value, type) else [*found, *attributes(value).values()]


def found_by(value: Any, names: set[str]) -> Iterator[Any]:
    """What code with these names finds in an object, class or file."""
    if isinstance(value, ModuleType):
        yield from (vars(value)[name] for name in names & vars(value).keys())
        return
    if not isinstance(value, type):
        own = attributes(value)
        yield from own.values() if _FIND_ANY & names else (own[name] for name in names & own.keys())
    for name, member in members(value if isinstance(value, type) else type(value)):
        if name in names or _FIND_ANY & names or (_is_special(name) and name not in _QUIET):
            found = functions_of(member)
            yield from filter(is_users_function, found) if found else [member]


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class and those that it derives from have, but those of frameworks and of Python."""
    for base in kind.__mro__:
        if not _is_of_framework(base) and not _is_of_python(base):
            yield from [*vars(base).items()]


def functions_of(member: Any) -> list[Any]:
    """The functions that a member of a class is made of."""
    if isinstance(member, property):
        return [function for function in (member.fget, member.fset) if function is not None]
    if isinstance(member, (staticmethod, classmethod)):
        return [member.__func__]
    if isinstance(member, (functools.cached_property, functools.partialmethod)):
        return [member.func]
    return [member] if isinstance(member, FunctionType) else []


@functools.cache
def is_users_module(module: ModuleType) -> bool:
    """Whether a file is the user's."""
    return _is_users_file(getattr(module, "__file__", None))


def _is_users(kind: type) -> bool:
    return kind.__module__ == "__main__" or _is_users_file(getattr(sys.modules.get(kind.__module__), "__file__", None))


def _is_users_file(file: str | None) -> bool:
    return file is not None and not file.startswith(PACKAGES)


def _is_of_framework(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _FRAMEWORKS


def _is_of_python(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in sys.stdlib_module_names


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class ObjectTwin:
    """What stands for an object: what it has is the twin of what the object has now, and what is written to it is
    written to the object. It is none of the object's class, whose `__init_subclass__` would hear of it."""

    __slots__ = ("__weakref__", "_bridge_twin")

    def __getattribute__(self, name: str) -> Any:
        twins, own = object.__getattribute__(self, "_bridge_twin")
        if name == "_bridge_twin":
            return twins, own
        if name == "__class__":
            return type(own)
        if name == "__dict__":
            return MappingProxyType({key: twins.of(value) for key, value in own.__dict__.items()})
        member = _member(type(own), name)
        if isinstance(member, property) and is_users_function(member.fget):
            return twins.of(member.fget)(self)
        if isinstance(member, functools.cached_property) and name not in vars(own):
            value = twins.of(member.func)(self)
            setattr(self, name, value)
            return value
        found = getattr(own, name)
        if isinstance(found, (BuiltinMethodType, MethodWrapperType)) and found.__self__ is own:
            return lambda *args, **kwargs: twins.of(found(*args, **kwargs))
        return twins.of(found)

    def __setattr__(self, name: str, value: Any) -> None:
        twins, own = self._bridge_twin
        member = _member(type(own), name)
        if isinstance(member, property) and is_users_function(member.fset):
            twins.of(member.fset)(self, value)
        else:
            setattr(own, name, twins.kept(value, f"{_name_of(own)}.{name} is assigned"))

    def __delattr__(self, name: str) -> None:
        delattr(self._bridge_twin[1], name)

    def __eq__(self, other: object) -> bool:
        twins, own = self._bridge_twin
        return bool(own == twins.own_of(other))

    def __hash__(self) -> int:
        return hash(self._bridge_twin[1])


class _TypeOfTwin(type):
    """What `type(self)` is in a method, where the object's class is meant."""

    _bridge_kind: type

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._bridge_kind, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        setattr(cls._bridge_kind, name, value)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._bridge_kind(*args, **kwargs)


class _ClassTwin(ObjectTwin):
    """That of a class."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._bridge_twin[1](*args, **kwargs)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._bridge_twin[1])

    def __subclasscheck__(self, kind: Any) -> bool:
        twins, own = self._bridge_twin
        return issubclass(twins.own_of(kind), own)

    def __mro_entries__(self, _: Any) -> tuple[Any, ...]:
        return (self._bridge_twin[1],)


def twin_of_object(twins: Any, own: Any) -> Any:
    """The twin of an object, class or file. Nothing in it is looked at yet."""
    kind = _ClassTwin if isinstance(own, type) else _twin_class(type(own))  # type: ignore[arg-type]
    twin = kind.__new__(kind)
    object.__setattr__(twin, "_bridge_twin", (twins, own))
    return twin


@functools.cache
def _twin_class(kind: type) -> Any:
    """ObjectTwin with the special methods of a class, which Python looks for in classes."""
    names = {name for base in kind.__mro__[:-1] for name in vars(base) if _is_special(name)} - _OWN
    special = {name: _special(name) for name in names if callable(getattr(kind, name, None))}
    if "__eq__" in _special_names(kind):
        special["__eq__"] = _special("__eq__")
    special["__hash__"] = None if kind.__hash__ is None else ObjectTwin.__hash__  # a class with __eq__ alone has None
    special |= {"__slots__": (), "__module__": kind.__module__, "_bridge_kind": kind}
    return _TypeOfTwin(kind.__name__, (ObjectTwin,), special)


def _special_names(kind: type) -> set[str]:
    """Of the special methods of a class, those that the user has written."""
    return {name for base in kind.__mro__ for name, member in vars(base).items() if is_users_function(member)}


def _special(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, name)(*args, **kwargs)

    return method


def _member(kind: type, name: str) -> Any:
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _name_of(own: Any) -> str:
    return str(own.__name__ if isinstance(own, (type, ModuleType)) else type(own).__name__)
