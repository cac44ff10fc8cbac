"""A function and its arguments as bytes that tell them from others: its code, and everything that it can see.

What the user's code finds by name is followed into the user's modules, classes and objects, with all that their own
code finds. Functions and classes of packages stand for themselves: their source files tell them apart (store.py). What
cannot be followed or written, as a lock or what `globals()` finds, is an error here, and no program is kept then.
"""

from __future__ import annotations

import argparse
import builtins
import copyreg
import enum
import functools
import hashlib
import io
import os
import pathlib
import pickle
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

import mindspore as ms
import numpy as np
import torch

from bridge.programs.memory import Memory

_TORCH = f"{pathlib.Path(torch.__file__).parent}/"
# Code of packages is told apart by their source files: what it sees in its modules is not written down.
PACKAGES = (
    f"{pathlib.Path(torch.__file__).parents[1]}/",
    f"{pathlib.Path(ms.__file__).parents[1]}/",
    f"{pathlib.Path(__file__).parents[1]}/",
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib")),
)
# What every Cell has; what is its own among that is written down by name.
_OF_ALL_CELLS = frozenset(vars(ms.nn.Cell()))


class TellsItself:
    """An object that says what tells it from others."""

    def told_apart_by(self) -> Any:
        raise NotImplementedError


# Objects of a user's class that derives from these are written whole; of others, what code finds in them.
_WHOLE = (
    int, float, complex, str, bytes, tuple, list, dict, set, frozenset, np.ndarray, np.generic, torch.Tensor,
    torch.nn.Module, ms.Tensor, ms.nn.Cell, TellsItself, enum.Enum, type, BaseException,
)  # fmt: skip
# Names stand for them, and for what they are bound to.
_IN_C = (
    BuiltinFunctionType, GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType,
)  # fmt: skip
_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)
# Of a class of a package, and of a set.
_PLAIN = (type(None), bool, int, float, str)
# What transformers' generation config had as its hash: another number in each process.
_HASH = "_original_object_hash"
_READS_FILES = {
    "open", "read_text", "read_bytes", "load", "load_file", "loadtxt", "loadmat", "fromfile", "from_file", "genfromtxt",
    "memmap", "imread", "read_image", "read_file", "read_csv",
}  # fmt: skip
_READS_ENVIRONMENT = {"environ", "getenv"}
# Code with these names may find any attribute of an object.
_FINDS_ANY = {"getattr", "vars", "__dict__", "__getattribute__", "attrgetter", "dir"}
_FINDS_ANYTHING = "globals"
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


@dataclass
class Written:
    """What tells a function and its arguments from others, also in the next process.

    Args:
        digest: of its code, of what it can see, and of the arguments.
        tensors: the ids of the tensors among that.
    """

    digest: bytes
    tensors: set[int]


def write_down(called: Any, state: Sequence[torch.Tensor]) -> Written | None:
    """What tells a function and its arguments from others; None if something in them cannot be written down.

    Args:
        called: both.
        state: tensors whose data does not matter.
    """
    to = io.BytesIO()
    pickler = _Pickler(to, state)
    try:
        pickler.dump(called)
    except Exception:  # whatever the attributes of somebody's objects raise: it is captured in each process
        return None
    return Written(hashlib.sha256(to.getvalue()).digest(), pickler.tensors)


def digest_of(tensor: torch.Tensor) -> str:
    """That of a tensor's data."""
    data = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(data.tobytes()).hexdigest()


class _Pickler(pickle.Pickler):
    """Writes tensors as their shapes and digests, and functions as their code."""

    def __init__(self, to: io.BytesIO, state: Sequence[torch.Tensor]) -> None:
        super().__init__(to, protocol=4)
        self._state = {id(tensor): i for i, tensor in enumerate(state)}
        self._memory = Memory(state)
        self.tensors: set[int] = set()

    def persistent_id(self, value: Any) -> Any:
        if type(value) in (set, frozenset) and all(type(item) in _PLAIN for item in value):
            # Their order is another one in each process.
            return repr(sorted(map(repr, value)))
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return repr((value.shape, str(value.dtype), hashlib.sha256(value.tobytes()).hexdigest()))
        if isinstance(value, torch.Tensor) and type(value) in _TENSORS and not vars(value):
            return self._described(value)
        return None

    def _described(self, tensor: torch.Tensor) -> str:
        self.tensors.add(id(tensor))
        spec = (type(tensor).__name__, tuple(tensor.shape), str(tensor.dtype), tensor.requires_grad, str(tensor.device))
        if id(tensor) in self._state:
            return repr((spec, self._state[id(tensor)]))
        layout = tensor.stride(), tensor.is_conj(), tensor.is_neg()
        if (part := self._memory.part(tensor)) is not None:
            return repr((spec, layout, part))
        return repr((spec, layout, digest_of(tensor)))

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _Stand, (self._described(value),), (type(value), vars(value))
        if isinstance(value, FunctionType) and not _is_importable(value):
            # As an object's state, because a function may see itself.
            return _Stand, (value.__module__, value.__qualname__), _parts(value)
        if isinstance(value, MethodType):
            return _Stand, (), (value.__func__, value.__self__)
        if isinstance(value, _IN_C):
            bound = getattr(value, "__self__", None)
            named = None if isinstance(bound, (type, ModuleType)) else bound
            return _Stand, (_name_of(value),), (named,)
        if isinstance(value, _OPERATORS):
            return _Stand, (str(value),)
        if isinstance(value, torch.jit.ScriptFunction):
            return _Stand, (str(value.inlined_graph),)
        if isinstance(value, torch.library.CustomOpDef):
            return _Stand, (value._qualname,), (value._init_fn,)
        if isinstance(value, type) and (members := _members(value)):
            return _Stand, (value.__module__, value.__qualname__), members
        if _HASH in (own := getattr(value, "__dict__", ())):
            return _Stand, (type(value),), {name: own[name] for name in own if name != _HASH}
        if isinstance(value, TellsItself):
            return _Stand, (type(value),), {"of": value.told_apart_by()}
        if isinstance(value, torch.nn.Module) and is_users_function(getattr(type(value), "__getstate__", None)):
            return _Stand, (type(value),), vars(value)  # all of it, also what that leaves out
        if _is_object(value):
            return _Stand, (type(value),), attributes(value)
        if isinstance(value, ms.nn.Cell):
            return _Stand, (type(value),), _parts_of_cell(value)
        if isinstance(value, ms.Parameter):
            return _Stand, (value.name, tuple(value.shape), str(value.dtype))
        if isinstance(value, ms.Tensor):
            data = np.ascontiguousarray(value.asnumpy())
            return _Stand, (tuple(value.shape), str(value.dtype), hashlib.sha256(data.tobytes()).hexdigest())
        return NotImplemented


class _Stand:
    """Stands for a function, class, Cell or tensor in what is written down."""


def _is_importable(function: FunctionType) -> bool:
    """Whether a function is PyTorch's, by its name: its version stands for it."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function and function.__code__.co_filename.startswith(_TORCH)


def _parts(function: FunctionType) -> dict[str, Any]:
    code, own = function.__code__, function.__globals__
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    names = set(_names(code))
    if not names.isdisjoint(_READS_FILES - own.keys()) or _FINDS_ANYTHING in names:
        raise pickle.PicklingError(f"{function.__qualname__} reads what its names do not tell")
    environment = []
    if not names.isdisjoint(_READS_ENVIRONMENT):
        environment = [os.environ.get(text) for text in _texts(code)]
    imported = {name: sys.modules[name] for name in names - own.keys() if name in sys.modules}
    put = {name: value for name, value in vars(builtins).items() if isinstance(value, _PLAIN) and not _is_special(name)}
    methods = {name: value for name, value in vars(torch.Tensor).items() if is_users_function(value)}
    seen = _seen({**put, **methods, **imported, **own}, names, set())
    attributes = {name: value for name, value in vars(function).items() if not _is_special(name)}
    parts = (function.__defaults__, function.__kwdefaults__, cells, seen, attributes, environment)
    return {"code": _described(code), "parts": parts}


def _seen(values: Mapping[str, Any], names: set[str], inside: set[int]) -> list[tuple[str, Any]]:
    """What these names find among values, and, where that is a module or an object of the user's, in it.

    Args:
        inside: the ids of the modules and objects around.
    """
    found: list[tuple[str, Any]] = []
    for name in sorted(names & values.keys()):
        value = function_of(values[name])
        around = {*inside, id(value)}
        if isinstance(value, ModuleType):
            if id(value) not in inside:
                found.append((name, _of_module(value, names, around)))
        elif _is_object(value):
            if id(value) not in inside:
                found.append((name, _of_object(value, names, around)))
        else:
            found.append((name, _name_of(value) if _is_of_packages_code(value) else value))
    return found


def _of_module(module: ModuleType, names: set[str], inside: set[int]) -> Any:
    """What names find in a module. In a package's they find functions that the user has put there."""
    if not is_of_package(module.__name__):
        data = {name for name, value in vars(module).items() if not isinstance(value, (FunctionType, type, ModuleType))}
        found = names if names.isdisjoint(_FINDS_ANY) else names | {name for name in data if not _is_special(name)}
        return _seen(vars(module), found, inside)
    values = {name: vars(module)[name] for name in names & vars(module).keys()}
    return _seen({n: v for n, v in values.items() if isinstance(v, ModuleType) or is_users_function(v)}, names, inside)


def _of_object(value: Any, names: set[str], inside: set[int]) -> Any:
    """The class of an object, and what these names and those of its methods find in it."""
    methods = (function_of(member) for kind in type(value).__mro__ for member in vars(kind).values())
    names = names.union(*(_names(method.__code__) for method in methods if is_users_function(method)))
    own = attributes(value)
    return type(value), _seen(own, names if names.isdisjoint(_FINDS_ANY) else {*own}, inside)


def attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object itself."""
    return slots_of(value) | getattr(value, "__dict__", {})


def slots_of(value: Any) -> dict[str, Any]:
    """Those of its attributes that no dictionary holds."""
    names: list[str] = copyreg._slotnames(type(value))  # type: ignore[attr-defined]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def is_users_function(value: Any) -> bool:
    """Whether it is a function of neither a package nor Python."""
    return isinstance(value, FunctionType) and not value.__code__.co_filename.startswith(PACKAGES)


def _is_of_packages_code(value: Any) -> bool:
    """Whether it is a function or class of a package."""
    if isinstance(value, FunctionType):
        return not is_users_function(value)
    return isinstance(value, type) and is_of_package(value.__module__)


def _name_of(value: Any) -> tuple[str, ...]:
    return type(value).__name__, str(getattr(value, "__module__", "")), getattr(value, "__qualname__", repr(value))


def _is_object(value: Any) -> bool:
    """Whether it is an object of a class of the user's, and nothing that is written whole: what derives from a class of
    a package may have its data where only that class finds it."""
    if isinstance(value, (SimpleNamespace, argparse.Namespace)):
        return True
    return not isinstance(value, _WHOLE) and not any(
        is_of_package(kind.__module__) for kind in type(value).__mro__[:-1]
    )


def is_of_package(module: str) -> bool:
    if module == "__main__":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or file.startswith(PACKAGES)


def _members(kind: type) -> dict[str, Any]:
    """The user's functions in a class and the classes that it derives from, and values of their attributes."""
    found: dict[str, Any] = {}
    if issubclass(kind, enum.Enum):
        found["members"] = [(member.name, member.value) for member in kind]
    if not is_of_package(type(kind).__module__):
        found["metaclass"] = type(kind)
    for base in reversed(kind.__mro__):
        is_own = not is_of_package(base.__module__)
        members = {name: function_of(member) for name, member in vars(base).items()}
        functions = {name: value for name, value in members.items() if isinstance(value, FunctionType)}
        values = {name: value for name, value in members.items() if name not in functions and not _is_special(name)}
        if issubclass(base, enum.Enum):
            values = {name: value for name, value in values.items() if not isinstance(value, enum.Enum)}
        found.update({f"{base.__qualname__}.{name}": f for name, f in functions.items() if is_users_function(f)})
        if is_own:
            names = {name for function in functions.values() for name in _names(function.__code__)}
            seen = _seen(values, {*values, *names}, set())
        else:
            seen = [(name, value) for name, value in sorted(values.items()) if isinstance(value, _PLAIN)]
        if seen and base.__module__.partition(".")[0] not in ("torch", "mindspore", "bridge"):
            found[base.__qualname__] = seen
    return found


def _is_special(name: str) -> bool:
    """Whether Python has the name for itself, in all classes or those of a metaclass of its own."""
    return (name.startswith("__") and name.endswith("__")) or name == "_abc_impl"


def function_of(member: Any) -> Any:
    """The function that a property, a static method, a class method or a cached function has, or that a package's
    decorator has wrapped; what a partial method has."""
    if isinstance(member, functools.partialmethod):
        return member.func, member.args, member.keywords
    if isinstance(member, FunctionType) and not is_users_function(member) and hasattr(member, "__wrapped__"):
        return _name_of(member), member.__wrapped__, [cell.cell_contents for cell in member.__closure__ or ()]
    if isinstance(member, property):
        return member.fget
    if isinstance(member, functools.cached_property):
        return member.func
    if isinstance(member, (staticmethod, classmethod)):
        return member.__func__
    return member.__wrapped__ if isinstance(member, functools._lru_cache_wrapper) else member


def _parts_of_cell(cell: ms.nn.Cell) -> dict[str, Any]:
    """Its mode, attributes, Parameters and Cells."""
    own = {name: value for name, value in vars(cell).items() if name not in _OF_ALL_CELLS}
    parameters = list(cell.parameters_dict(recurse=False).values())
    return {"training": cell.training, "own": own, "parameters": parameters, "cells": list(cell.name_cells().items())}


def _described(code: CodeType) -> Any:
    constants = [_described(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _names(value)


def _texts(code: CodeType) -> Iterator[str]:
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _texts(value)
        elif isinstance(value, str):
            yield value
