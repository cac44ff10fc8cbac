"""Calls whose results without data are not like those with data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import compute_required_storage_length
from torch.utils._pytree import tree_leaves

# Results that hold what only the kernel knows the size of: a workspace. Or their meta kernel gives a wrong size.
_SIZES = {
    "aten::mkldnn_rnn_layer", "aten::_cudnn_rnn", "aten::cudnn_batch_norm", "aten::multilabel_margin_loss_forward",
}  # fmt: skip
# Of an input and weights of two dtypes, as under autocast, their meta kernels give the statistics the input's.
_STATISTICS = {
    "aten::native_layer_norm", "aten::native_group_norm", "aten::native_batch_norm", "aten::_native_batch_norm_legit",
}  # fmt: skip


def is_wrong_on_meta(func: Any, args: Sequence[Any]) -> bool:
    """Whether a call has to be made to learn the form of its results."""
    name = func._schema.name
    if name in _STATISTICS and len({value.dtype for value in args if isinstance(value, torch.Tensor)}) > 1:
        return True
    return name in _SIZES or _is_free_in_strides(func, args)


def _is_free_in_strides(func: Any, args: Sequence[Any]) -> bool:
    """Whether a kernel chooses the strides of its results, of an input that is not contiguous. A view has those that
    it must have, and what works on each element for itself those that PyTorch's rule gives in both cases."""
    if torch.Tag.pointwise in func.tags or any(argument.alias_info for argument in func._schema.arguments):
        return False
    return any(isinstance(value, torch.Tensor) and not value.is_contiguous() for value in tree_leaves(args))


def zeros_like(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with data and the same strides, which may overlap."""
    length = compute_required_storage_length(tensor.shape, tensor.stride(), 0)
    made = torch.zeros(length, dtype=tensor.dtype, device=tensor.device)
    return made.as_strided(tensor.shape, tensor.stride())
