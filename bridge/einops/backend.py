"""einops' backend for MindSpore's tensors, as its own backends are: einops finds it among the subclasses.

PyNative mode takes it: a pattern becomes a few functions of bridge.torch. MindSpore's compiler takes the functions of
bridge.einops in the place of einops' own, whose Python it cannot compile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import mindspore as ms
import torch
from einops._backends import AbstractBackend, TorchBackend

from bridge import _mindspore
from bridge import torch as functions
from bridge.op import dtypes
from bridge.torch.function import Function


def _reduced(x: torch.Tensor, operation: str, dims: Sequence[int], order: Sequence[int]) -> torch.Tensor:
    """A reduction of what einops has permuted to this order: a sum over a view rounds otherwise than over its copy."""
    back = sorted(range(len(order)), key=order.__getitem__)
    return TorchBackend().reduce(x.permute(back).contiguous().permute(list(order)), operation, dims)


_reduce = Function("einops.reduce", _reduced)


class MindSporeBackend(AbstractBackend):
    """The calls that einops makes on PyTorch's tensors, on MindSpore's."""

    framework_name = "mindspore"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, ms.Tensor)

    def from_numpy(self, x: Any) -> ms.Tensor:
        return ms.Tensor(x)

    def to_numpy(self, x: ms.Tensor) -> Any:
        return x.asnumpy()

    def arange(self, start: int, stop: int) -> ms.Tensor:
        return functions.arange(start, stop, dtype=ms.int64)

    def reshape(self, x: ms.Tensor, shape: Sequence[int]) -> ms.Tensor:
        return functions.reshape(x, tuple(shape))

    def transpose(self, x: ms.Tensor, axes: Sequence[int]) -> ms.Tensor:
        permuted = functions.permute(x, tuple(axes))
        permuted.order_of_axes = tuple(axes)  # MindSpore's tensors keep no strides
        return permuted

    def reduce(self, x: ms.Tensor, operation: str, axes: Iterable[int]) -> ms.Tensor:
        return _reduce(x, operation, tuple(axes), getattr(x, "order_of_axes", tuple(range(x.ndim))))

    def stack_on_zeroth_dimension(self, tensors: list[ms.Tensor]) -> ms.Tensor:
        return functions.stack(tensors)

    def add_axis(self, x: ms.Tensor, new_position: int) -> ms.Tensor:
        return functions.unsqueeze(x, new_position)

    def add_axes(self, x: ms.Tensor, n_axes: int, pos2len: Mapping[int, int]) -> ms.Tensor:
        for position in pos2len:
            x = self.add_axis(x, position)
        return functions.expand(x, [pos2len.get(position, -1) for position in range(n_axes)])

    def tile(self, x: ms.Tensor, repeats: Sequence[int]) -> ms.Tensor:
        return functions.tile(x, tuple(repeats))

    def concat(self, tensors: list[ms.Tensor], axis: int) -> ms.Tensor:
        return functions.cat(tensors, dim=axis)

    def is_float_type(self, x: ms.Tensor) -> bool:
        dtype: torch.dtype = dtypes.to_torch(x.dtype)
        return dtype.is_floating_point

    def einsum(self, pattern: str, *x: ms.Tensor) -> ms.Tensor:
        return functions.einsum(pattern, *x)

    def layers(self) -> Any:
        from bridge.einops.layers import torch as layers  # which imports PyTorch's of einops

        return layers


def compile_functions(own: Iterable[Function]) -> None:
    """Have MindSpore's compiler take these for the functions of einops that they run."""
    for function in own:
        _mindspore.compile_as(function.function, function)
