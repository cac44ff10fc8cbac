"""What gradient primitives compute: the `bprop` of an ATen primitive is a primitive too, of any order.

`ms_ext/gradient.cpp` has the kernel. A gradient of level n takes the inputs of level n - 1 and a cotangent for each of
its outputs, and gives the gradients of its floating and complex inputs; level 0 is the operator.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bridge.encoding import RANDOM_MARK, Slot, decode, encode

# In front of the overload's name, where a kernel's name is asked for.
PREFIX = "gradient of "
BACKWARD_PREFIX = "backward of "


@dataclass(frozen=True)
class Level:
    """What a gradient primitive computes."""

    name: str
    """The overload."""
    text: str
    """The overload's arguments."""
    level: int
    outputs: int
    """How many outputs the overload has."""

    def kernel_text(self, inputs: int) -> str:
        """The argument text of the kernel (ms_ext/gradient.cpp)."""
        return "".join(map(encode, (self.name, self.level, self.outputs, inputs))) + self.text


def parse(kernel_text: str) -> Level:
    """The level, back from `Level.kernel_text`."""
    size, _, rest = kernel_text[1:].partition(":")
    name, rest = rest[: int(size)], rest[int(size) :]
    level, outputs, _, text = rest.split(";", 3)
    return Level(name, text, int(level[1:]), int(outputs[1:]))


def op_inputs(text: str) -> int:
    """How many tensors an overload's kernel takes for its gradient: its inputs, and the state of a draw."""

    def count(value: Any) -> int:
        return sum(map(count, value)) if isinstance(value, list) else isinstance(value, Slot)

    return count(decode(text)) + text.endswith(RANDOM_MARK)


def inner_inputs(spec: Level, differentiable: Sequence[bool]) -> int:
    """How many of a gradient's inputs are the inputs of the level below; `differentiable` says which could have one."""

    def inner(level: int) -> int:
        if level == 1:
            return op_inputs(spec.text)
        if level == 2:
            return inner(1) + spec.outputs
        return inner(level - 1) + sum(differentiable[: inner(level - 2)])

    return inner(spec.level)


def infer(kernel_text: str, inputs: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> tuple[Any, ...]:
    """Shapes and dtypes of the gradients: those of the inputs that they belong to."""
    spec = parse(kernel_text)
    differentiable = [dtype.is_floating_point or dtype.is_complex for _, dtype in inputs]
    inner = inner_inputs(spec, differentiable)
    return tuple(value for value, wanted in zip(inputs[:inner], differentiable, strict=False) if wanted)


def backward_text(name: str, text: str, results: int, passed: bool, tracked: str) -> str:
    """The argument text of a backward shim (ms_ext/backward.h)."""
    return "".join(map(encode, (results, passed, tracked, name))) + text


def infer_backward(text: str, inputs: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> tuple[Any, ...]:
    """Shapes and dtypes of a backward shim's gradients."""
    return tuple(value for value in inputs[: op_inputs(text)] if value[1].is_floating_point or value[1].is_complex)
