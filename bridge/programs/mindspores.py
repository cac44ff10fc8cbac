"""What MindSpore's own things are inside a fused program, whose tensors are PyTorch's: those that would do nothing
there, and say nothing.

They are replaced for good once a program is fused, and are MindSpore's own outside programs. To replace them in each
call would take tens of microseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import mindspore as ms
import torch
from mindspore import ops
from torch.utils import _pytree as pytree

from bridge import _mindspore
from bridge.call import in_program
from bridge.op import dtypes

_DTYPE: Any = next(kind for kind in type(ms.float32).__mro__ if kind.__name__ == "Type")


class _Torch(ModuleType):
    """What stands for bridge.torch: its dtypes and its Tensor are PyTorch's."""

    def __init__(self, own: ModuleType) -> None:
        super().__init__(own.__name__)
        self._own = own

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._own, name)
        if found is ms.Tensor:
            return torch.Tensor
        return twin_of_dtype(found) if is_dtype(found) else found


@functools.cache
def twin_of_module(module: ModuleType) -> ModuleType:
    """What stands for a module that is not the user's."""
    return _Torch(module) if module.__name__ == "bridge.torch" else module


def is_dtype(value: Any) -> bool:
    """Whether a value is one of MindSpore's dtypes."""
    return isinstance(value, _DTYPE)


def twin_of_dtype(value: Any) -> Any:
    """PyTorch's dtype for one of MindSpore's; that itself if there is none, as for a list's."""
    try:
        return dtypes.to_torch(value)
    except (KeyError, TypeError):
        return value


@functools.cache
def replace_functions() -> None:
    """Have MindSpore's functions do inside programs what they are for, or say that they do not."""
    _replace(ops.StopGradient, "__call__", _stop_gradient)
    _replace(ops.InsertGradientOf, "__call__", _refusing("ops.InsertGradientOf"))
    _replace(_mindspore.no_grad, "__enter__", _begin_no_grad)
    _replace(_mindspore.no_grad, "__exit__", _end_no_grad)
    differentiates = _refusing("mindspore.grad or value_and_grad", ": bridge.value_and_grad differentiates there")
    _replace(_mindspore.PyNativeExecutor, "grad", differentiates)
    _replace(_mindspore.jit_executor(), "__call__", _refusing("a function of mindspore.jit or mindspore.grad"))
    own: Any = _DTYPE.__eq__

    def equal(one: Any, other: Any) -> Any:
        return twin_of_dtype(one) is other if type(other) is torch.dtype else own(one, other)

    _DTYPE.__eq__ = equal


def _replace(holder: Any, name: str, stand_in: Callable[..., Any]) -> None:
    own = getattr(holder, name)

    @functools.wraps(own)
    def function(*args: Any, **kwargs: Any) -> Any:
        return (stand_in if in_program.is_inside() else own)(*args, **kwargs)

    setattr(holder, name, function)


def _stop_gradient(_: Any, value: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, value)


def _refusing(what: str, advice: str = "") -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{what} does not run inside bridge.fuse and bridge.value_and_grad{advice}")

    return refuse


def _begin_no_grad(context: Any) -> None:
    context.prev_state = torch.is_grad_enabled()
    torch.set_grad_enabled(False)


def _end_no_grad(context: Any, *_: Any) -> bool:
    torch.set_grad_enabled(context.prev_state)
    return False
