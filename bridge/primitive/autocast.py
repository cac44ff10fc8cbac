"""`torch.autocast` around calls. Modules and PyTorch's functions follow it. A single operator's kernel does not, and an
operator that it would cast for refuses it."""

from __future__ import annotations

import functools

import torch

from bridge.op import devices
from bridge.op.overload import Overload
from bridge.op.schema import label


def is_on() -> bool:
    """Whether `torch.autocast` is on for MindSpore's device."""
    return torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(_kind())


def refuse(overload: Overload) -> None:
    """Raise RuntimeError if it is on, for an operator that it casts for, itself or in its parts."""
    if is_on() and _casts(overload.torch_op, f"Autocast{_kind().upper()}"):
        raise RuntimeError(
            f"{label(overload.name)}: torch.autocast does not reach the operators of bridge.aten: call the function of "
            "bridge.torch or of bridge.nn.functional, or cast with aten.to"
        )


def _kind() -> str:
    return torch.device(devices.torch_name(devices.target())).type


@functools.cache
def _casts(op: torch._ops.OpOverload, key: str) -> bool:
    if not isinstance(op, torch._ops.OpOverload):
        return False
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    is_view = any(returned.alias_info is not None for returned in op._schema.returns)
    has_parts = has(op.name(), "CompositeImplicitAutograd") and not is_view and not op.__name__.startswith("_")
    return bool(has(op.name(), key) or has_parts)
