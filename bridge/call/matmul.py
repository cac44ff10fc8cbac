"""torch.matmul of two batches of matrices, of which one has a single matrix, as eager PyTorch computes it.

Under a mode of PyTorch's, as a tape is one, PyTorch multiplies by that one matrix (`mm`), as it does where the matrix
requires a gradient. Eager PyTorch expands it else, and multiplies matrix by matrix (`bmm`), which rounds otherwise.
"""

from __future__ import annotations

from typing import Any

import torch

_matmul: Any = torch.matmul


def matmul(input: Any, other: Any, **kwargs: Any) -> Any:
    """As torch.matmul."""
    if kwargs or not _are_batches(input, other):
        return _matmul(input, other, **kwargs)
    single = input if input.shape[0] == 1 else other
    if single.requires_grad:
        return _matmul(input, other)
    size = max(input.shape[0], other.shape[0])
    return torch.bmm(input.expand(size, -1, -1), other.expand(size, -1, -1))


def _are_batches(input: Any, other: Any) -> bool:
    """Whether both are, and one of them has a single matrix."""
    if not (isinstance(input, torch.Tensor) and isinstance(other, torch.Tensor) and input.dim() == other.dim() == 3):
        return False
    sizes = input.shape[0], other.shape[0]
    return 1 in sizes and sizes != (1, 1)
