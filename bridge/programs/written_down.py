"""A function and its arguments as bytes that tell them from others: its code, and everything that it can see.

What the user's code finds by name is followed into the user's modules, classes and objects, with all that their own
code finds. Functions and classes of packages stand for themselves: their source files tell them apart (store.py). What
cannot be followed or written, as a lock or what `globals()` finds, is an error here, and no program is kept then.
"""

from __future__ import annotations

import argparse
import builtins
import copyreg
import datetime
import dis
import enum
import functools
import glob
import hashlib
import importlib
import inspect
import io
import itertools
import linecache
import operator
import os
import pathlib
import pickle
import platform
import random
import secrets
import socket
import subprocess
import sys
import sysconfig
import time
import uuid
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
import torch.distributed as dist

from bridge.programs.memory import Memory

_TORCH = f"{pathlib.Path(torch.__file__).parent}/"
# Code of packages is told apart by their source files: what it sees in its modules is not written down. Pip puts them
# elsewhere too: for a user, with --target, or for Python around a virtual environment.
PACKAGES = (
    f"{pathlib.Path(torch.__file__).parents[1]}/",
    f"{pathlib.Path(ms.__file__).parents[1]}/",
    f"{pathlib.Path(__file__).parents[1]}/",
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "purelib", "platlib")),
    *(f"{folder}/" for folder in sys.path if os.path.basename(folder) in ("site-packages", "dist-packages")),
    "<frozen ",  # Python's own, as os
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
    "open", "read_text", "read_bytes", "iterdir", "rglob", "is_file", "is_dir", "cwd", "load", "load_file", "loadtxt",
    "loadmat", "fromfile", "from_file", "genfromtxt", "memmap", "imread", "read_image", "read_file", "read_csv",
}  # fmt: skip
_READS_ENVIRONMENT = {"environ", "getenv"}
# Code with these names may find any attribute of an object.
_FINDS_ANY = {"getattr", "vars", "__dict__", "__getattribute__", "attrgetter", "dir"}
# Python's own functions with which code may find anything.
_FINDS_ANYTHING = {"globals", "eval", "exec", "__import__"}
# What these functions give in a process is written down.
_TELL = (
    dist.get_rank, dist.get_world_size, dist.is_initialized, dist.is_available, dist.is_torchelastic_launched,
    os.getcwd, os.cpu_count, socket.gethostname, platform.node, platform.system, platform.machine,
    torch.get_num_threads, torch.cuda.is_available, torch.cuda.device_count,
)  # fmt: skip
# What these find, nothing tells.
_DO_NOT_TELL = (
    os.listdir, os.scandir, os.walk, os.stat, os.getpid, os.getppid, os.urandom, os.path.exists, os.path.isfile,
    os.path.isdir, os.path.getsize, os.path.getmtime, glob.glob, glob.iglob, time.time, time.time_ns, time.monotonic,
    time.perf_counter, np.load, np.loadtxt, np.genfromtxt, np.fromfile, np.memmap, torch.load, torch.from_file,
    importlib.import_module, inspect.currentframe, inspect.stack, sys._getframe, datetime.datetime, datetime.date,
    os.popen, os.system, random.SystemRandom, secrets.choice, secrets.randbelow, secrets.randbits, secrets.token_bytes,
    secrets.token_hex, subprocess.Popen, subprocess.check_output, subprocess.getoutput, subprocess.run, uuid.uuid1,
    uuid.uuid4, linecache.getline, linecache.getlines,
)  # fmt: skip
_READING = frozenset(map(id, (*_TELL, *_DO_NOT_TELL, sys.modules)))
_GETTERS = (operator.attrgetter, operator.methodcaller)
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
        if id(value) in _READING:
            return _Stand, (_name_of(value), _told(value))
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


def _told(function: Any) -> str:
    """What a function gives in this process, as text.

    Raises:
        PicklingError: nothing tells what it will give.
    """
    if function not in _TELL:
        raise pickle.PicklingError(f"{function} gives what nothing tells")
    try:
        return repr(function())
    except Exception as error:  # there is no process group, say
        return repr(error)


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
    names |= _names_that_getters_have(own, names)
    finds_anything = names & (_FINDS_ANYTHING - own.keys()) and any(
        one.opname in LOADS_GLOBAL and one.argval in _FINDS_ANYTHING for one in instructions(code)
    )
    if finds_anything or not names.isdisjoint(_READS_FILES - own.keys()):
        raise pickle.PicklingError(f"{function.__qualname__} reads what its names do not tell")
    environment = []
    if not names.isdisjoint(_READS_ENVIRONMENT):
        texts = [*_texts(code), *(own[name] for name in sorted(names & own.keys()) if type(own[name]) is str)]
        if not _reads_named_variables(code, own):
            raise pickle.PicklingError(f"{function.__qualname__} computes the names of variables of the environment")
        environment = [os.environ.get(text) for text in texts]
    imported = {name: sys.modules[name] for name in names - own.keys() if name in sys.modules}
    put = {name: value for name, value in vars(builtins).items() if isinstance(value, _PLAIN) and not _is_special(name)}
    methods = {name: value for name, value in vars(torch.Tensor).items() if is_users_function(value)}
    seen = _seen({**put, **methods, **imported, **own}, names, set(), passed_on(code))
    attributes = {name: value for name, value in vars(function).items() if not _is_special(name)}
    parts = (function.__defaults__, function.__kwdefaults__, cells, seen, attributes, environment)
    # Errors name it. A notebook's is another one in each process, and none on the disk.
    file = code.co_filename if os.path.exists(code.co_filename) else ""
    return {"code": _described(code), "file": file, "parts": parts}


def _names_that_getters_have(values: Mapping[str, Any], names: set[str]) -> set[str]:
    """The names that `operator.attrgetter` and `methodcaller` ask for, of those that names find in a file and in the
    user's modules that it has."""
    found = [values[name] for name in names & values.keys()]
    for module in [one for one in found if isinstance(one, ModuleType) and not is_of_package(one.__name__)]:
        found += [vars(module)[name] for name in names & vars(module).keys()]
    asked = [str(text) for one in found if isinstance(one, _GETTERS) for text in one.__reduce__()[1]]
    return {name for text in asked for name in text.split(".")}


def _seen(
    values: Mapping[str, Any], names: set[str], inside: set[int], passed: frozenset[str] = frozenset()
) -> list[tuple[str, Any]]:
    """What these names find among values, and, where that is a module or an object of the user's, in it.

    Args:
        inside: the ids of the modules and objects around.
        passed: see passed_on.
    """
    found: list[tuple[str, Any]] = []
    for name in sorted(names & values.keys()):
        value = function_of(values[name])
        around = {*inside, id(value)}
        if isinstance(value, ModuleType):
            if id(value) not in inside:
                found.append((name, _of_module(value, names, around, passed, name in passed)))
        elif _is_object(value):
            if id(value) not in inside:
                found.append((name, _of_object(value, names, around)))
        else:
            is_name_enough = _is_of_packages_code(value) and id(value) not in _READING
            found.append((name, _name_of(value) if is_name_enough else value))
    return found


def _of_module(module: ModuleType, names: set[str], inside: set[int], passed: frozenset[str], is_passed: bool) -> Any:
    """What names find in a module; in one of the user's that is passed on, all. In a package's they find plain values,
    functions that the user has put there, those that read, and the names of other functions and classes."""
    if not is_of_package(module.__name__):
        found = names if names.isdisjoint(_FINDS_ANY) else names | data_in(module)
        return _seen(vars(module), found | all_in(module) if is_passed else found, inside, passed)
    values = {name: vars(module)[name] for name in sorted(names & vars(module).keys()) if not _is_special(name)}
    followed = {name: value for name, value in values.items() if _is_followed_in_package(value)}
    others = [
        (name, value) for name, value in values.items() if name not in followed and hasattr(value, "__qualname__")
    ]
    return _seen(followed, names, inside), [(name, _name_of(value)) for name, value in others]


def data_in(module: ModuleType) -> set[str]:
    """The names of values in a module that are no functions, classes or modules."""
    found = vars(module).items()
    return {n for n, value in found if not isinstance(value, (FunctionType, type, ModuleType)) and not _is_special(n)}


def all_in(module: ModuleType) -> set[str]:
    """The names in a module of the user's, but for those of packages."""
    found = vars(module).items()
    return {
        name
        for name, value in found
        if not _is_special(name) and not (isinstance(value, ModuleType) and is_of_package(value.__name__))
    }


def _is_followed_in_package(value: Any) -> bool:
    is_plain = isinstance(value, _PLAIN) or (type(value) is list and all(isinstance(item, _PLAIN) for item in value))
    return is_plain or isinstance(value, ModuleType) or is_users_function(value) or id(value) in _READING


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
        name = f"{base.__qualname__}.forward"
        if name not in found and "forward" in functions and functions["forward"].__qualname__ != name:
            found[name] = _name_of(functions["forward"])  # another class's
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


LOADS_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME"}


def instructions(code: CodeType) -> Iterator[dis.Instruction]:
    """Those of code, and of the functions in it."""
    yield from dis.get_instructions(code)
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from instructions(value)


@functools.cache
def passed_on(code: CodeType) -> frozenset[str]:
    """The names of what code takes whole, as `getattr(helpers, name)` does, and not only for an attribute that it
    names."""
    found = [one for one in instructions(code) if one.opname not in _BETWEEN]
    return frozenset(
        one.argval
        for one, following in itertools.pairwise(found)
        if one.opname.startswith("LOAD_")
        and isinstance(one.argval, str)
        and (following.opname not in ("LOAD_ATTR", "LOAD_METHOD") or following.argval == "__dict__")
    )


_BETWEEN = {"CACHE", "PRECALL", "PUSH_NULL", "EXTENDED_ARG", "KW_NAMES"}


def _reads_named_variables(code: CodeType, own: Mapping[str, Any]) -> bool:
    """Whether a text of code, or a global one, names each variable of the environment that it reads."""
    found = [one for one in instructions(code) if one.opname not in _BETWEEN]
    for i, one in enumerate(found):
        if one.argval in _READS_ENVIRONMENT and not one.opname.startswith(("IMPORT", "STORE")):
            after = [other for other in found[i + 1 : i + 5] if other.argval != "get"]
            if after and after[0].opname == "CONTAINS_OP":
                is_named = any(_is_text(other, own) for other in found[max(i - 2, 0) : i])
            else:
                is_named = bool(after) and _is_text(after[0], own) and _is_whole_name(after[1:])
            if not is_named:
                return False
    return True


def _is_whole_name(after: Sequence[dis.Instruction]) -> bool:
    """Whether these follow on a whole name of a variable: nothing is added to it."""
    # Constants: what is taken where there is none, and in Python 3.10 the name by which that is given.
    rest = [*itertools.dropwhile(lambda one: one.opname == "LOAD_CONST", after)]
    return bool(rest) and rest[0].opname.startswith(("CALL", "BINARY_SUBSCR", "STORE_SUBSCR"))


def _is_text(one: dis.Instruction, own: Mapping[str, Any]) -> bool:
    return isinstance(own.get(one.argval) if one.opname in LOADS_GLOBAL else one.argval, str) and (
        one.opname in LOADS_GLOBAL or one.opname == "LOAD_CONST"
    )


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
