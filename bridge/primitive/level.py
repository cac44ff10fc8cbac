"""What gradient primitives compute: the `bprop` of an ATen primitive is a primitive too, of any order.

`ms_ext/gradient.cpp` has the kernel. A gradient of level n takes the inputs of level n - 1 and a cotangent for each of
its outputs, and gives the gradients of its floating and complex inputs; level 0 is the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bridge.call.encoding import Reader, Slot, decode, encode, redraws

# In front of the overload's name, where a kernel's name is asked for.
PREFIX = "gradient of "
BACKWARD_PREFIX = "backward of "
# For an overload itself, run by the same kernel, whose results' shapes depend on the data.
UNSIZED_PREFIX = "results of "


@dataclass(frozen=True)
class Level:
    """What a gradient primitive computes."""

    name: str
    """The overload."""
    text: str
    """The overload's arguments."""
    outputs: int
    """How many outputs the overload has."""
    asked: tuple[str, ...]
    """For each level up to this one, which inputs of the level below have their gradient asked for: a 0 or 1 for each,
    or nothing if all have."""

    def kernel_text(self, inputs: int) -> str:
        """The argument text of the kernel (ms_ext/gradient.cpp)."""
        return "".join(map(encode, (self.name, list(self.asked), self.outputs, inputs))) + self.text


def parse(kernel_text: str) -> Level:
    """The level, back from `Level.kernel_text`."""
    reader = Reader(kernel_text)
    name, asked, outputs, _ = (reader.value() for _ in range(4))
    return Level(name, reader.rest(), outputs, tuple(asked))


def op_inputs(text: str) -> int:
    """How many tensors an overload's kernel takes for its gradient: its inputs, and the state of a draw."""

    def count(value: Any) -> int:
        return sum(map(count, value)) if isinstance(value, list) else isinstance(value, Slot)

    return count(decode(text)) + redraws(text)


def asked_of(asked: str, values: Sequence[Any]) -> list[Any]:
    """Those of an input's values whose gradient is asked for (see Level.asked)."""
    return [value for value, mark in zip(values, asked or "1" * len(values), strict=True) if mark == "1"]


def inner_inputs(spec: Level, differentiable: Sequence[bool]) -> int:
    """How many of a gradient's inputs are the inputs of the level below; `differentiable` says which could have one."""

    def inner(level: int) -> int:
        if level == 1:
            return op_inputs(spec.text)
        if level == 2:
            return inner(1) + spec.outputs
        return inner(level - 1) + sum(asked_of(spec.asked[level - 3], differentiable[: inner(level - 2)]))

    return inner(len(spec.asked))


def infer(kernel_text: str, inputs: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> tuple[Any, ...]:
    """Shapes and dtypes of the gradients: those of the inputs that they belong to."""
    spec = parse(kernel_text)
    differentiable = [dtype.is_floating_point or dtype.is_complex for _, dtype in inputs]
    inner = inner_inputs(spec, differentiable)
    asked = asked_of(spec.asked[-1], list(zip(inputs[:inner], differentiable, strict=False)))
    return tuple(value for value, wanted in asked if wanted)


def backward_text(name: str, text: str, results: int, passed: bool, tracked: str, asked: str) -> str:
    """The argument text of a backward shim (ms_ext/backward.h)."""
    return "".join(map(encode, (results, passed, tracked, asked, name))) + text


def infer_backward(kernel_text: str, inputs: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> tuple[Any, ...]:
    """Shapes and dtypes of a backward shim's gradients."""
    reader = Reader(kernel_text)
    _, _, _, asked, _ = (reader.value() for _ in range(5))
    return tuple(
        value
        for value in asked_of(asked, inputs[: op_inputs(reader.rest())])
        if value[1].is_floating_point or value[1].is_complex
    )
