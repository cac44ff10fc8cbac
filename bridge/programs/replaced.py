"""Functions, classes and lists of PyTorch's that are others while a program runs.

They are replaced where PyTorch's Python finds them. A mode of PyTorch's would see them too, but some of its layers
choose other kernels under such a mode. A function is another one in the thread of the program only: where sizes are
unknown, MindSpore's threads capture programs while the user's goes on.
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType, FunctionType, MethodType
from typing import Any

_ABSENT = object()  # of a class that inherits it, or a module that finds it elsewhere


@dataclass(frozen=True)
class Replacement:
    """`stand_in` stands for `holder.name`."""

    holder: Any
    name: str
    stand_in: Any

    def put(self, value: Any) -> None:
        setattr(self.holder, self.name, value)

    def take_away(self) -> None:
        delattr(self.holder, self.name)


class replaced:  # lower case: it is called as a function; a generator's context manager takes twice its time
    """Inside, these stand in the place of PyTorch's."""

    def __init__(self, replacements: Sequence[Replacement]) -> None:
        self._replacements = replacements

    def __enter__(self) -> None:
        self._before = [vars(each.holder).get(each.name, _ABSENT) for each in self._replacements]
        for each in self._replacements:
            own = getattr(each.holder, each.name, getattr(builtins, each.name, None))
            each.put(_here(each.stand_in, own))

    def __exit__(self, *_: Any) -> None:
        for each, own in zip(self._replacements, self._before, strict=True):
            if own is _ABSENT:
                each.take_away()
            else:
                each.put(own)


def caller() -> FrameType:
    """The frame that has called the function which asks, a stand-in. Between them is what chooses it for the thread."""
    return sys._getframe(3)


def _here(stand_in: Any, own: Any) -> Any:
    """What is PyTorch's own in all threads but this one."""
    if isinstance(stand_in, property):
        return property(_chosen(stand_in.fget, own.__get__), _chosen(stand_in.fset, own.__set__))
    return _chosen(stand_in, own) if isinstance(stand_in, (FunctionType, MethodType)) else stand_in


def _chosen(stand_in: Any, own: Any) -> Callable[..., Any]:
    here = threading.get_ident()

    def function(*args: Any, **kwargs: Any) -> Any:
        return (stand_in if threading.get_ident() == here else own)(*args, **kwargs)

    return function
