"""What the code of modules says, without running it."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch


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


def differentiates(module: torch.nn.Module) -> bool:
    """Whether a method of the module's class names torch.autograd or `torch.autograd.grad`, as a network does that
    gives forces, the gradient of an energy, or one that `forward` calls names `backward`."""
    kind: type = type(module)
    return _differentiates(kind)


@functools.cache
def _differentiates(kind: type) -> bool:
    return "backward" in _names_in_forward(kind) or any(
        name == "autograd" or any(function.__globals__.get(name) is it for it in (torch.autograd, torch.autograd.grad))
        for function in _functions(kind)
        for name in function.__code__.co_names
    )


def _names_in_forward(kind: type) -> set[str]:
    """The names in `forward`, and in the methods of the class that have one of these names."""
    found, left = {"forward"}, ["forward"]
    while left:
        method = getattr(kind, left.pop(), None)
        if inspect.isfunction(method) and not (method.__module__ or "").startswith("torch."):
            new = {*method.__code__.co_names} - found
            found |= new
            left += new
    return found


def _functions(kind: type) -> Iterator[types.FunctionType]:
    """The functions of a class and of those that it derives from, without PyTorch's."""
    for each in kind.__mro__:
        if not each.__module__.startswith("torch."):
            yield from filter(inspect.isfunction, vars(each).values())
