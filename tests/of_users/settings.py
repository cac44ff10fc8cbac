"""Values that networks find here."""

import collections
import enum
import functools
import types
from typing import Any

import torch

K = 2.0
D = {"k": 2.0}
S = {"a", "b"}
namespace = types.SimpleNamespace(k=2.0)


class Options:
    k = 2.0


class Setting:
    def __init__(self) -> None:
        self.v = 2.0

    @property
    def half(self) -> float:
        return self.v / 2


setting: Any = Setting()


class Tool:
    """Its code finds what its users do not name."""

    def __init__(self) -> None:
        self.v = 2.0

    def __call__(self, x: Any) -> Any:
        return x * self.v

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def scaled(self, x: Any) -> Any:
        return self(x)


class Slotted:
    __slots__ = ("v",)

    def __init__(self) -> None:
        self.v = 2.0


class Mode(enum.Enum):
    ONE = 1
    OTHER = 2


class Table(collections.UserDict[str, float]):
    """Its data is where only the class that it derives from finds it."""


class Recent(collections.deque[float]):
    """Its data is in C."""


table: Any = Table(k=2.0)
recent: Any = Recent([2.0])
tool: Any = Tool()
slotted: Any = Slotted()
activation: Any = torch.square
power: Any = functools.partial(torch.pow, exponent=2.0)
mode = Mode.ONE
