"""The default dtype: of what is made without one, and of what integers become."""

from __future__ import annotations

from typing import Any

import torch

from bridge import aten
from bridge.infer import meta, on_data, unknown
from bridge.op import dtypes
from bridge.operator import Operator
from bridge.primitive import composite, kernel
from bridge.torch.function import Function


def get_default_dtype() -> Any:
    """MindSpore's dtype of what is made without one: float32, until `set_default_dtype` says another."""
    return dtypes.to_mindspore(torch.get_default_dtype())


def set_default_dtype(d: Any) -> None:
    """Set the dtype of what is made without one from here on, in PyTorch too; graphs that are compiled keep theirs.

    Args:
        d: a floating dtype, MindSpore's or PyTorch's.

    Raises:
        TypeError: it is not a floating dtype.
    """
    torch.set_default_dtype(d if isinstance(d, torch.dtype) else dtypes.to_torch(d))
    for found in (
        meta.infer,
        on_data.infer_on_data,
        unknown.check_dtypes,
        composite.replacement,
        kernel.graph_primitive,
    ):
        found.cache_clear()
    for operator in vars(aten).values():
        if isinstance(operator, Operator):
            operator.forget()
    Function.forget_all()
