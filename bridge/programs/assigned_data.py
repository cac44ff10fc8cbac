"""`weight.data = values`, as layers with masks or binary weights write it: a parameter or buffer has other memory.

In a program it stands for another register from there on. Where it ends with that, the program begins with a copy of
it, because what came before has to be kept for the gradient, and ends by writing to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bridge.programs.calls import Call, Refusal, Register
from bridge.programs.memory import layout
from bridge.programs.replaced import Replacement

NAME = "data"
_own: Any = torch._C.TensorBase.data


class AssignedData:
    """What parameters and buffers stand for while a tape records.

    Args:
        tensors: those of the registers.
        register: gives the register of a tensor.
        stand_in: takes a tensor for a register from now on.
    """

    def __init__(
        self,
        tensors: list[torch.Tensor],
        register: Callable[[torch.Tensor], int],
        stand_in: Callable[[torch.Tensor, int], None],
    ) -> None:
        self._tensors = tensors
        self._register = register
        self._stand_in = stand_in
        self._inputs: dict[int, tuple[torch.Tensor, int]] = {}

    def add(self, tensor: torch.Tensor, register: int) -> None:
        """Know a parameter or buffer, whose data is that of an input."""
        self._inputs[id(tensor)] = tensor, register

    def replacement(self) -> Replacement:
        """What stands for `Tensor.data`."""
        return Replacement(torch.Tensor, NAME, property(_own.__get__, self._set))

    def _set(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        if id(tensor) not in self._inputs:
            if layout(self._tensors[self._register(tensor)]) == layout(self._tensors[self._register(value)]):
                return  # as in `x.data += y`, which has written
            raise Refusal(
                f"it assigns the data of a tensor of shape {list(tensor.shape)} that is neither a parameter nor a "
                "persistent buffer, which a graph does not follow"
            )
        if (tensor.shape, tensor.dtype) != (value.shape, value.dtype):
            raise Refusal("it assigns to a parameter or buffer data of another shape or dtype, which a graph does not")
        self._stand_in(tensor, self._register(value))

    def changed(self) -> set[int]:
        """The inputs that now have other data."""
        return {own for _, own, now in self._now() if layout(self._tensors[now]) != layout(self._tensors[own])}

    def write_back(self) -> list[Call]:
        """The calls that write to these inputs."""
        changed, copy = self.changed(), torch.ops.aten.copy_.default
        return [
            Call(copy, [Register(own), Register(now), False], [own], [own])
            for _, own, now in self._now()
            if own in changed
        ]

    def _now(self) -> list[tuple[torch.Tensor, int, int]]:
        return [(tensor, own, self._register(tensor)) for tensor, own in self._inputs.values()]
