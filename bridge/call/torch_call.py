"""A bound call in PyTorch: the argument text as PyTorch's arguments, and PyTorch's errors as the user sees them."""

from __future__ import annotations

from typing import Any

import torch

from bridge.call.int64_hint import with_hint
from bridge.op import dtypes
from bridge.op.encoding import Size, Slot, Text
from bridge.op.overload import Overload
from bridge.op.schema import label


def _torch_value(argument: Any, value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, Slot):
        tensor = tensors[value.position]
        return tensor.shape[0] if isinstance(value, Size) else tensor
    if isinstance(value, list):
        return [_torch_value(argument, item, tensors) for item in value]
    if value is None:
        return None
    if argument.base == "ScalarType":
        return dtypes.TORCH_DTYPES[value]
    if argument.base in ("Layout", "MemoryFormat"):
        return getattr(torch, value)
    return value


def torch_call(op: Overload, text: Text, tensors: list[torch.Tensor], device: str) -> Any:
    """Call the overload in PyTorch with the arguments of `text`; what lets a device be named is on `device`."""
    values = iter(text.values)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in op.schema.arguments:
        if argument.base in ("Device", "Generator"):
            value = device if argument.base == "Device" else None
        else:
            value = _torch_value(argument, next(values), tensors)
        if argument.keyword_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return op.torch_op(*args, **kwargs)


def flat(results: Any) -> list[torch.Tensor]:
    """The tensors among the results of an overload."""
    if isinstance(results, torch.Tensor):
        return [results]
    if not isinstance(results, (list, tuple)):
        return []
    return [tensor for result in results for tensor in flat(result)]


# What PyTorch's operators raise, beside RuntimeError. Any other error is a stumble of their inference, and no class to
# tell users of.
_KINDS = (TypeError, ValueError, IndexError, OverflowError, NotImplementedError, torch.linalg.LinAlgError)


def renamed(error: Exception, name: str) -> Exception:
    """The error as one of the kinds that PyTorch's operators raise, saying which operator it is about."""
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), RuntimeError)
    words, _, _ = str(error).partition("\nException raised from")  # what follows is a C++ backtrace
    return kind(f"{label(name)}: {with_hint(words)}")
