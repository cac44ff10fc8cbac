"""The dtypes that MindSpore and PyTorch both have."""

from __future__ import annotations

import torch

from .verdict import Skip

# By their common name.
SHARED_DTYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"),
)
DTYPE_NAMES: dict[torch.dtype, str] = {getattr(torch, name): name for name in SHARED_DTYPES}


def check_representable(value: object) -> None:
    """Look at a tensor; anything else passes.

    Raises:
        Skip: no MindSpore tensor can hold it.
    """
    if not isinstance(value, torch.Tensor):
        return
    if value.is_quantized or value.is_nested or value.layout != torch.strided:
        raise Skip(f"{'quantized' if value.is_quantized else 'nested' if value.is_nested else 'sparse'} tensors")
    if value.dtype not in DTYPE_NAMES:
        raise Skip(f"MindSpore has no {value.dtype}")
