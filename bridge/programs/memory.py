"""Where tensors lie in memory."""

from __future__ import annotations

from typing import Any

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
