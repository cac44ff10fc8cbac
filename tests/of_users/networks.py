"""Networks and functions that find values elsewhere."""

from __future__ import annotations

import functools
import operator
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bridge import aten
from of_users import settings
from of_users.settings import Options, setting

ARRAY = np.array([2.0], np.float32)
FILE = "scale.txt"
VARIABLE = "SCALE_OF_THIS_TEST"
get_scale = operator.attrgetter("K")


def scaled(x: Any) -> Any:
    return x * settings.K


def counted(x: Any) -> Any:
    return x * counted.k  # type: ignore[attr-defined]


counted.k = 2.0  # type: ignore[attr-defined]


@functools.lru_cache
def cached() -> float:
    return settings.K


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * settings.K

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        return gradient * settings.K


def imported(module: Any, x: Any) -> Any:
    import of_users.settings as own

    return x * own.K


class Base(torch.nn.Module):
    k = 2.0
    own = setting

    def doubled(self) -> float:
        return 2 * settings.K

    @staticmethod
    def scaled(x: Any) -> Any:
        return x * settings.K


class Network(Base):
    def __init__(self, forward: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.function = forward

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


FORWARDS: dict[str, Callable[[Any, Any], Any]] = {
    "a module": lambda module, x: x * settings.K,
    "a dictionary of a module": lambda module, x: x * settings.D["k"],
    "a namespace of a module": lambda module, x: x * settings.namespace.k,
    "a set of a module": lambda module, x: x * len(settings.S),
    "a loop": lambda module, x: x * sum(settings.K for _ in range(2)),
    "a module that is imported there": imported,
    "a function": lambda module, x: scaled(x),
    "an attribute of a function": lambda module, x: counted(x),
    "a cached function": lambda module, x: x * cached(),
    "a method": lambda module, x: x * module.doubled(),
    "a static method": lambda module, x: module.scaled(x),
    "an autograd function": lambda module, x: Scale.apply(x),
    "its class": lambda module, x: x * module.k,
    "an object of its class": lambda module, x: x * module.own.v,
    "another class": lambda module, x: x * Options.k,
    "an object": lambda module, x: x * setting.v,
    "a property of an object": lambda module, x: x * setting.half,
    "what a method of an object finds": lambda module, x: settings.tool.scaled(x),
    "what an object that is called finds": lambda module, x: settings.tool(x),
    "an item of an object": lambda module, x: x * settings.tool["v"],
    "an object with slots": lambda module, x: x * settings.slotted.v,
    "a function of PyTorch's": lambda module, x: settings.activation(x + 1),
    "an item of a table of a class": lambda module, x: x * settings.table["k"],
    "an item of a sequence of a class": lambda module, x: x * settings.recent[0],
    "a name that is put together": lambda module, x: x * getattr(settings, "".join("K")),
    "a partial function": lambda module, x: settings.power(x + 1),
    "an enumeration": lambda module, x: x * (2 if settings.mode is settings.Mode.ONE else 3),
    "an array": lambda module, x: x * torch.from_numpy(ARRAY),
    "the environment": lambda module, x: x * float(os.environ["SCALE_OF_THIS_TEST"]),
    "a variable of the environment by a name": lambda module, x: x * float(os.environ.get(VARIABLE, "7")),
    "a name that an object has": lambda module, x: x * get_scale(settings),
}


def of_a_file(module: Any, x: Any) -> Any:
    return x * float(pathlib.Path(FILE).read_text())


def of_an_array_in_a_file(module: Any, x: Any) -> Any:
    return x * torch.tensor(np.load(FILE))


def of_tensors_in_a_file(module: Any, x: Any) -> Any:
    return x * torch.load(FILE)["scale"]


def of_operators(x: Any) -> Any:
    return aten.mul(aten.mul(x, settings.K), Options.k + setting.v)
