"""PyTorch's initial values (torch.nn.init) for MindSpore's Parameters: in place, with PyTorch's draws."""

from __future__ import annotations

import functools as _functools
import inspect as _inspect
from collections.abc import Callable as _Callable
from typing import Any

import mindspore as _ms
import torch as _torch
from torch.nn import init as _init

from bridge._start import start_on as _start_on
from bridge.op import devices as _devices
from bridge.programs.sharing import Sharing as _Sharing
from bridge.programs.state import tensor_of as _tensor_of


def _in_place(function: _Callable[..., Any]) -> _Callable[..., Any]:
    """A function that fills PyTorch's tensor, for a Parameter."""

    @_functools.wraps(function)
    def fill(tensor: _ms.Parameter, *args: Any, **kwargs: Any) -> _ms.Parameter:
        if not isinstance(tensor, _ms.Parameter):
            hint = ": give it the Parameter itself, without `.data`" if isinstance(tensor, _ms.Tensor) else ""
            raise TypeError(f"{function.__name__} fills a Parameter, and was given a {type(tensor).__name__}{hint}")
        _start_on(_devices.target())  # which seeds PyTorch as MindSpore was seeded
        torch_tensor = _tensor_of(tensor)
        _Sharing(function.__name__, [tensor], [torch_tensor]).run(lambda _: function(torch_tensor, *args, **kwargs), [])
        return tensor

    return fill


globals().update(
    {
        name: _in_place(value) if name.endswith("_") else value
        for name, value in vars(_init).items()
        if _inspect.isfunction(value) and not name.startswith("_") and (name.endswith("_") or name == "calculate_gain")
    }
)
__all__ = [name for name in globals() if not name.startswith("_") and name not in ("annotations", "Any")]


def __getattr__(name: str) -> Any:
    if hasattr(_init, f"{name}_"):
        raise AttributeError(f"bridge.nn.init has no {name}, which PyTorch has deprecated: use {name}_")
    raise AttributeError(f"bridge.nn.init has no {name}, and neither has torch.nn.init {_torch.__version__}")
