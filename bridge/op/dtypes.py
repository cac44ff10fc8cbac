"""The dtypes that MindSpore and PyTorch share, under both names."""

from __future__ import annotations

from collections.abc import Iterable

import mindspore as ms
import torch

_NAMES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
)

TORCH_DTYPES = {name: getattr(torch, name) for name in _NAMES}
MINDSPORE_DTYPES = {name: getattr(ms, "bool_" if name == "bool" else name) for name in _NAMES}
MINDSPORE_FROM_TORCH = {TORCH_DTYPES[name]: MINDSPORE_DTYPES[name] for name in _NAMES}
TORCH_FROM_MINDSPORE = {MINDSPORE_DTYPES[name]: TORCH_DTYPES[name] for name in _NAMES}
NAME_FROM_TORCH = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def to_torch(dtype: ms.dtype.Type) -> torch.dtype:
    """PyTorch's dtype for MindSpore's; TypeError if it has none."""
    try:
        return TORCH_FROM_MINDSPORE[dtype]
    except KeyError:
        raise TypeError(f"PyTorch has no dtype for MindSpore's {dtype}") from None


def to_mindspore(dtype: torch.dtype) -> ms.dtype.Type:
    """MindSpore's dtype for PyTorch's; TypeError if it has none (complex32, quantized ones, ...)."""
    try:
        return MINDSPORE_FROM_TORCH[dtype]
    except KeyError:
        raise TypeError(f"MindSpore has no dtype for PyTorch's {dtype}") from None


def name(dtype: torch.dtype) -> str:
    """The common name of PyTorch's dtype; TypeError if MindSpore does not have it."""
    to_mindspore(dtype)
    return NAME_FROM_TORCH[dtype]


def names(types: Iterable[ms.dtype.Type]) -> str:
    """The names of MindSpore dtypes as one text: an attribute of a primitive in graph mode."""
    return " ".join(NAME_FROM_TORCH[to_torch(dtype)] for dtype in types)
