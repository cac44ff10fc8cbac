"""Calls whose results without data are not like those with data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

# Results that hold what only the kernel knows the size of: a workspace. Or their meta kernel gives a wrong size.
_SIZES = {
    "aten::mkldnn_rnn_layer", "aten::_cudnn_rnn", "aten::cudnn_batch_norm", "aten::multilabel_margin_loss_forward",
}  # fmt: skip
# Of an input and weights of two dtypes, as under autocast, their meta kernels give the statistics the input's.
_STATISTICS = {
    "aten::native_layer_norm", "aten::native_group_norm", "aten::native_batch_norm", "aten::_native_batch_norm_legit",
}  # fmt: skip


def is_wrong_on_meta(func: Any, args: Sequence[Any]) -> bool:
    name = func._schema.name
    if name in _STATISTICS:
        return len({value.dtype for value in args if isinstance(value, torch.Tensor)}) > 1
    return name in _SIZES
