"""A function that `mindspore.jit` compiles has a graph for each of the modes that the modules in it are in.

MindSpore compiles a function once for the shapes and dtypes of its arguments, and does not ask whether a module that it
calls trains. It is given the modes as a part of the name under which it keeps the graph.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from bridge import _mindspore


class _Modes:
    """The modes of the modules in a function."""

    def __init__(self) -> None:
        self._parts: list[torch.nn.Module] = []
        self._first: list[bool] = []  # those in which the function was compiled first
        self._known: set[int] = set()

    def add(self, modules: Iterable[torch.nn.Module]) -> None:
        """Take the modules that are in a graph of the function's."""
        for module in modules:
            for part in module.modules():
                if id(part) not in self._known:
                    self._known.add(id(part))
                    self._parts.append(part)
                    self._first.append(part.training)

    def name(self) -> str:
        """What tells these modes apart; empty for the first ones. Parts that come later do not change it."""
        now = [part.training for part in self._parts]
        if now == self._first:
            return ""
        others = "".join("01"[mode != first] for mode, first in zip(now, self._first, strict=True))
        return f"{int(others[::-1], 2):x}."


class _Compiling(threading.local):
    modules: list[torch.nn.Module] | None = None


_compiling = _Compiling()
_functions: weakref.WeakKeyDictionary[Any, dict[int, _Modes]] = weakref.WeakKeyDictionary()


def note(modules: Iterable[torch.nn.Module]) -> None:
    """The function that this thread compiles calls these modules."""
    if _compiling.modules is not None:
        _compiling.modules += modules


@functools.cache
def compile_for_modes() -> None:
    """Have MindSpore compile functions so."""
    _mindspore.around_compile(_compiled)


def _compiled(function: Any, owner: Any, compile_as: Callable[[str], Any]) -> Any:
    modes = _functions.setdefault(function, {}).setdefault(id(owner), _Modes())
    before, _compiling.modules = _compiling.modules, []
    try:
        found = compile_as(modes.name())
        modes.add(_compiling.modules)
        return found
    finally:
        _compiling.modules = before
