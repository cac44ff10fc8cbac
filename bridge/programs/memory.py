"""Where tensors lie in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch


def storage_of(tensor: torch.Tensor) -> int:
    """What tells a tensor's memory from others'."""
    return tensor.untyped_storage()._cdata


def layout(tensor: torch.Tensor) -> Any:
    """What tells a tensor from others, in all memory."""
    return storage_of(tensor), tensor.dtype, *layout_in_memory(tensor)


def layout_in_memory(tensor: torch.Tensor) -> Any:
    """What tells a tensor from others of its dtype in the same memory."""
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's memory, as one row."""
    length = tensor.untyped_storage().nbytes() // tensor.itemsize
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage(), 0, (length,), (1,))


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor is its memory, row by row."""
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize
    return whole and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


class Part(NamedTuple):
    """A part of a tensor's memory.

    Args:
        position: that of the tensor among several.
        offset: where the part begins, in elements; None if there are elements elsewhere, or of another kind.
    """

    position: int
    offset: int | None


class Memory:
    """The memory that several contiguous tensors have now, in whichever storages: PyTorch has another storage for a
    tensor that MindSpore has given its memory."""

    def __init__(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        self._known: list[tuple[torch.Tensor, tuple[int, int]]] = []
        for tensor in tensors:
            self.add(tensor)

    def add(self, tensor: torch.Tensor) -> None:
        self._known.append((tensor, _extent(tensor)))

    def part(self, tensor: torch.Tensor) -> Part | None:
        """What a tensor is of the memory of one of these; None if it has no memory of theirs."""
        first, end = _extent(tensor)
        for position, (known, (begin, last)) in enumerate(self._known):
            if first < last and begin < end and known.device == tensor.device:
                offset, rest = divmod(first - begin, known.itemsize)
                is_alike = known.dtype == tensor.dtype and not tensor.is_conj() and not tensor.is_neg()
                is_inside = begin <= first and end <= last and rest == 0
                return Part(position, offset if is_alike and is_inside else None)
        return None


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor's memory begins and ends; twice the same if it has none."""
    if tensor.layout is not torch.strided or not tensor.numel() or tensor.is_meta:
        return 0, 0
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return begin, begin + (steps + 1) * tensor.itemsize
