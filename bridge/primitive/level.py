"""What gradient primitives compute: the `bprop` of an ATen primitive is a primitive too, of any order.

`ms_ext/gradient/gradient.cpp` has the kernel. A gradient of level n takes the inputs of level n - 1 and a cotangent for
each of its outputs, and gives the gradients of its floating and complex inputs; level 0 is the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bridge.op.encoding import Reader, Text, encode

# In front of the overload's name, where a kernel's name is asked for.
GRADIENT_PREFIX = "gradient of "
BACKWARD_PREFIX = "backward of "
# For an overload itself, run by the same kernel, whose results' shapes depend on the data.
UNSIZED_PREFIX = "results of "


@dataclass(frozen=True)
class Level:
    """What a gradient primitive computes."""

    name: str
    """The overload."""
    text: Text
    """The overload's arguments."""
    outputs: int
    """How many outputs the overload has."""
    asked: tuple[str, ...]
    """For each level up to this one, which inputs of the level below have their gradient asked for: a 0 or 1 for each,
    or nothing if all have."""

    def kernel_text(self, inputs: int) -> str:
        """The argument text of the kernel (ms_ext/gradient/gradient.cpp)."""
        return "".join(map(encode, (self.name, list(self.asked), self.outputs, inputs))) + self.text


def parse(kernel_text: str) -> Level:
    """The level, back from `Level.kernel_text`."""
    reader = Reader(kernel_text)
    name, asked, outputs, _ = (reader.value() for _ in range(4))
    return Level(name, Text(reader.rest()), outputs, tuple(asked))


def asked_of(asked: str, values: Sequence[Any]) -> list[Any]:
    """Those of an input's values whose gradient is asked for (see Level.asked)."""
    return [value for value, mark in zip(values, asked or "1" * len(values), strict=True) if mark == "1"]


def inner_inputs(level: Level, differentiable: Sequence[bool]) -> int:
    """How many of a gradient's inputs are the inputs of the level below; `differentiable` says which could have one."""

    def inner(order: int) -> int:
        if order == 1:
            return level.text.inputs
        if order == 2:
            return inner(1) + level.outputs
        return inner(order - 1) + sum(asked_of(level.asked[order - 3], differentiable[: inner(order - 2)]))

    return inner(len(level.asked))


def infer(kernel_text: str, inputs: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> tuple[Any, ...]:
    """Shapes and dtypes of the gradients: those of the inputs that they belong to."""
    level = parse(kernel_text)
    differentiable = [dtype.is_floating_point or dtype.is_complex for _, dtype in inputs]
    inner = inner_inputs(level, differentiable)
    asked = asked_of(level.asked[-1], list(zip(inputs[:inner], differentiable, strict=False)))
    return tuple(value for value, wanted in asked if wanted)


def backward_text(name: str, text: Text, results: int, passed: bool, tracked: str, asked: str) -> str:
    """The argument text of a backward shim (ms_ext/backward.h)."""
    return "".join(map(encode, (results, passed, tracked, asked, name))) + text


def infer_backward(kernel_text: str, inputs: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> tuple[Any, ...]:
    """Shapes and dtypes of a backward shim's gradients."""
    reader = Reader(kernel_text)
    _, _, _, asked, _ = (reader.value() for _ in range(5))
    return tuple(
        value
        for value in asked_of(asked, inputs[: Text(reader.rest()).inputs])
        if value[1].is_floating_point or value[1].is_complex
    )
