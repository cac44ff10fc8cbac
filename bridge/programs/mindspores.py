"""What MindSpore's own things are inside a fused program, whose tensors are PyTorch's: those that would do nothing
there, and say nothing.

They are replaced for good once a program is fused, and are MindSpore's own outside programs. To replace them in each
call would take tens of microseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import mindspore as ms
import torch
from mindspore import ops
from torch.utils import _pytree as pytree

from bridge import _mindspore
from bridge.call import in_program
from bridge.op import dtypes

_DTYPE: Any = next(kind for kind in type(ms.float32).__mro__ if kind.__name__ == "Type")


class _KindOfTensor(type):
    """Has PyTorch's tensors be instances of MindSpore's Tensor."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, (ms.Tensor, torch.Tensor))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return ms.Tensor(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        return getattr(ms.Tensor, name)


class _Tensor(metaclass=_KindOfTensor):
    """What stands for mindspore.Tensor."""


# What asks whether something is a tensor.
_STAND_INS: dict[Any, Any] = {
    ms.Tensor: _Tensor,
    ops.is_tensor: torch.is_tensor,
    ops.is_floating_point: torch.is_floating_point,
}


class _Module(ModuleType):
    """What stands for bridge.torch, whose dtypes and Tensor are PyTorch's, and for mindspore."""

    def __init__(self, own: ModuleType) -> None:
        super().__init__(own.__name__)
        self._own = own

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._own, name)
        if isinstance(found, ModuleType):
            return twin_of_module(found)
        if self._own.__name__ == "bridge.torch":
            if found is ms.Tensor:
                return torch.Tensor
            return twin_of_dtype(found) if is_dtype(found) else found
        return stand_in(found)


@functools.cache
def twin_of_module(module: ModuleType) -> ModuleType:
    """What stands for a module that is not the user's."""
    name = module.__name__
    return _Module(module) if name == "bridge.torch" or name.partition(".")[0] == "mindspore" else module


def stand_in(value: Any) -> Any:
    """What stands for a class or function of MindSpore's that asks whether something is a tensor; else the value."""
    return _STAND_INS.get(value, value) if isinstance(value, (type, FunctionType)) else value


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
