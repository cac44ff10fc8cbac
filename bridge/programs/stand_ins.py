"""Whether a function uses what some attributes hold: others stand there meanwhile, which note any use.

A call that sets an attribute and never reads it leaves nothing that another one would read, as where a module keeps its
last attention for somebody to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Place = tuple[dict[str, Any], str]  # a dictionary, and a key that it has
# What Python asks classes for, not objects.
_OPERATORS = (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and", "xor",
    "or",
)  # fmt: skip
_OTHERS = (
    "lt", "le", "eq", "ne", "gt", "ge", "neg", "pos", "abs", "invert", "bool", "int", "float", "complex", "index",
    "round", "trunc", "floor", "ceil", "str", "repr", "format", "bytes", "hash", "len", "length_hint", "getitem",
    "setitem", "delitem", "contains", "iter", "next", "reversed", "call", "enter", "exit", "array",
    "torch_function", "setattr", "delattr", "dir", "copy", "deepcopy", "reduce_ex", "getstate", "fspath", "get",
    "set",
)  # fmt: skip


class _Used(Exception):
    """A stand-in was used."""


class _Watch:
    """Whether a function runs, and whether it has used one of the stand-ins."""

    def __init__(self) -> None:
        self.is_on = self.is_used = False

    def note(self) -> None:
        if self.is_on:
            self.is_used = True
            raise _Used("an attribute of another call is used")


_watch = _Watch()
beginnings: list[Callable[[], None]] = []  # called where a function that is watched begins


def is_watching() -> bool:
    """Whether such a function runs."""
    return _watch.is_on


def _noting(name: str) -> Any:
    own = getattr(object, name, None)

    def method(*args: Any, **kwargs: Any) -> Any:
        _watch.note()
        return NotImplemented if own is None else own(*args, **kwargs)

    return method


def _truth(_: Any) -> bool:
    _watch.note()
    return True


_IN_THREE = [f"__{kind}{name}__" for name in _OPERATORS for kind in ("", "r", "i")]
_NAMES = ["__getattribute__", *_IN_THREE, *(f"__{name}__" for name in _OTHERS)]
_StandIn = type("_StandIn", (), {name: _noting(name) for name in _NAMES} | {"__bool__": _truth})


def is_stand_in(value: Any) -> bool:
    """Whether a value is one."""
    return type(value) is _StandIn


class StandIns:
    """Inside, stand-ins are where values were.

    Args:
        places: where the values are.

    Attributes:
        are_used: whether a function that was watched has used one.
    """

    def __init__(self, places: Iterable[Place]) -> None:
        self._values = [(place, key, place[key]) for place, key in places]
        self.are_used = False

    def __enter__(self) -> StandIns:
        _watch.is_used = False
        for place, key, _ in self._values:
            place[key] = _StandIn()
        return self

    def __exit__(self, *_: object) -> None:
        self.are_used = _watch.is_used
        for place, key, value in self._values:
            if is_stand_in(place.get(key)):
                place[key] = value


class watched:
    """Inside runs a function whose uses are noted."""

    def __enter__(self) -> None:
        for begin in beginnings:
            begin()
        self._was_on, _watch.is_on = _watch.is_on, True

    def __exit__(self, *_: object) -> None:
        _watch.is_on = self._was_on
