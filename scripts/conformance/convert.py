"""Arguments and results between PyTorch and MindSpore, by raw bytes so that every dtype and every bit survives."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import torch

from .compare import bits, flatten
from .dtypes import DTYPE_NAMES
from .verdict import Mismatch, Skip

_TO_MS = {dtype: getattr(ms, "bool_" if name == "bool" else name) for dtype, name in DTYPE_NAMES.items()}
_TO_TORCH = {ours: theirs for theirs, ours in _TO_MS.items()}


def to_ms(tensor: torch.Tensor) -> ms.Tensor:
    data = bits(tensor).numpy().tobytes()
    return ms.Tensor(ms.Tensor.convert_bytes_to_tensor(data, tuple(tensor.shape), ms_dtype(tensor.dtype)))


def to_torch(tensor: ms.Tensor) -> torch.Tensor:
    dtype = _TO_TORCH.get(tensor.dtype)
    if dtype is None:
        raise Mismatch(f"result has MindSpore dtype {tensor.dtype}")
    data = bytearray(tensor.get_bytes())
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(tuple(tensor.shape))


def ms_dtype(dtype: torch.dtype) -> Any:
    if dtype not in _TO_MS:
        raise Skip(f"MindSpore has no {dtype}")
    return _TO_MS[dtype]


def argument(value: Any) -> Any:
    """A PyTorch argument as a MindSpore user writes it."""
    if isinstance(value, torch.Tensor):
        return to_ms(value)
    if isinstance(value, (list, tuple)):
        return [argument(v) for v in value]
    if isinstance(value, torch.dtype):
        return ms_dtype(value)
    if isinstance(value, torch.memory_format):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.Generator):
        raise Skip("an explicit generator object")
    return value


def keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: argument(value) for name, value in kwargs.items()}


def leaves(result: Any) -> list[Any]:
    """The leaves of the bridge's result, tensors as PyTorch's."""
    return [to_torch(v) if isinstance(v, ms.Tensor) else v for v in flatten(result)]
