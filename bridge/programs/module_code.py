"""What the code of modules says, without running it."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from traceback import FrameSummary
from typing import Any

import torch

from bridge.programs.written_down import is_users_function


def is_torch_code(function: Callable[..., Any]) -> bool:
    """Whether a function or a module, with its parts, is PyTorch's own."""
    parts = map(type, function.modules()) if isinstance(function, torch.nn.Module) else [function]
    return all((getattr(part, "__module__", None) or "torch").split(".")[0] == "torch" for part in parts)


def sets_attribute(module: torch.nn.Module, name: str) -> bool:
    """Whether a method of the module's class writes `... .name = ...`."""
    kind: type = type(module)
    return _sets_attribute(kind, name)


@functools.cache
def _sets_attribute(kind: type, name: str) -> bool:
    steps = (step for function in _functions(kind) for step in dis.get_instructions(function))
    return any(step.opname == "STORE_ATTR" and step.argval == name for step in steps)


def where_set(module: torch.nn.Module, name: str) -> FrameSummary | None:
    """The line of a module's code that sets an attribute when the module is called, or else that reads it, as where a
    list gets an item; None if there is none."""
    kind: type = type(module)
    called = dict.fromkeys([*_called(kind), *_functions(kind)])
    for wanted in ("STORE_ATTR", "LOAD_ATTR"):
        for function in (function for function in called if function.__name__ != "__init__"):
            line = None
            for step in dis.get_instructions(function):
                line = step.starts_line or line
                if step.opname == wanted and step.argval == name:
                    return FrameSummary(function.__code__.co_filename, line, function.__name__)
    return None


def asks_whether_one(module: torch.nn.Module) -> str:
    """What a module that is called says of two variables, as `key is value`; empty if it says no such thing. Of parts,
    which may get the module's arguments, the user's classes count."""
    parts: list[type] = [type(part) for part in module.modules()]
    kinds = dict.fromkeys([*parts[:1], *(kind for kind in parts if not is_torch_code(kind))])
    return next((question for kind in kinds if (question := _asks_whether_one(kind))), "")


@functools.cache
def _asks_whether_one(kind: type) -> str:
    forward = inspect.unwrap(getattr(kind, "forward", lambda: None))
    for function in filter(inspect.isfunction, dict.fromkeys([forward, *_called(kind)])):
        steps = [*dis.get_instructions(function)]
        for one, other, step in zip(steps, steps[1:], steps[2:], strict=False):
            if step.opname == "IS_OP" and one.opname.startswith("LOAD_FAST") and other.opname.startswith("LOAD_FAST"):
                return f"`{one.argval} is {'not ' if step.arg else ''}{other.argval}`"
    return ""


def differentiates(module: torch.nn.Module) -> bool:
    """Whether a network asks for gradients itself, as one does that gives forces, the gradient of an energy: whether a
    method of the module's class names torch.autograd or `torch.autograd.grad`, or what `forward` calls names one of
    these or `backward`."""
    kind: type = type(module)
    return _differentiates(kind)


@functools.cache
def _differentiates(kind: type) -> bool:
    called = [*_called(kind)]
    return any("backward" in function.__code__.co_names for function in called) or any(
        name == "autograd" or any(function.__globals__.get(name) is it for it in (torch.autograd, torch.autograd.grad))
        for function in (*_functions(kind), *called)
        for name in function.__code__.co_names
    )


def _called(kind: type) -> Iterator[types.FunctionType]:
    """`forward`, and what it may call: methods of the class, and functions that its files and those that it imports
    have, of the user's or of the package of the class."""
    done: set[types.FunctionType] = set()
    left: list[Any] = [getattr(kind, "forward", None)]
    while left:
        function = left.pop()
        if inspect.isfunction(function):
            function = inspect.unwrap(function)  # a decorator's is what it decorates
        if not inspect.isfunction(function) or function in done or not _is_near(function, kind):
            continue
        done.add(function)
        yield function
        names = function.__code__.co_names
        found = [function.__globals__.get(name) for name in names]
        left += [getattr(kind, name, None) for name in names]
        left += found
        left += [vars(it).get(name) for it in found if isinstance(it, types.ModuleType) for name in names]


def _is_near(function: types.FunctionType, kind: type) -> bool:
    package = (function.__module__ or "").partition(".")[0]
    return package != "torch" and (is_users_function(function) or package == kind.__module__.partition(".")[0])


def _functions(kind: type) -> Iterator[types.FunctionType]:
    """The functions of a class and of those that it derives from, without PyTorch's."""
    for each in kind.__mro__:
        if not each.__module__.startswith("torch."):
            yield from filter(inspect.isfunction, vars(each).values())
