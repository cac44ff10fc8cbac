"""PyTorch's schedules of learning rates (torch.optim.lr_scheduler) for the optimizers of bridge.optim."""

from __future__ import annotations

import functools as _functools
import inspect as _inspect
import weakref as _weakref
from typing import Any

from torch.optim import lr_scheduler as _torch

from bridge.optim.optimizer import Optimizer as _Optimizer
from bridge.torch.names import absent as _absent

_optimizers: _weakref.WeakKeyDictionary[Any, _Optimizer] = _weakref.WeakKeyDictionary()  # of schedules


def _scheduler_class(torch_class: type[Any]) -> type[Any]:
    """PyTorch's schedule, which takes an optimizer of bridge.optim."""
    takes_optimizer = next(iter(_inspect.signature(torch_class).parameters)) == "optimizer"  # ChainedScheduler does not

    @_functools.wraps(torch_class.__init__)
    def init(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        if not takes_optimizer:
            torch_class.__init__(self, optimizer, *args, **kwargs)
            return
        if not isinstance(optimizer, _Optimizer):
            name = torch_class.__name__
            raise TypeError(f"{name} takes an optimizer of bridge.optim, not a {type(optimizer).__name__}")
        _optimizers[self] = optimizer
        torch_class.__init__(self, optimizer.torch_optimizer, *args, **kwargs)

    @_functools.wraps(torch_class.step)
    def step(self: Any, *args: Any, **kwargs: Any) -> None:
        optimizer = _optimizers.get(self)
        if optimizer is not None:
            optimizer.wait_for_steps()
        torch_class.step(self, *args, **kwargs)
        if optimizer is not None:
            optimizer.rates.show()  # a graph sees MindSpore's Parameters

    members = {"__init__": init, "step": step, "__module__": __name__, "__doc__": _inspect.getdoc(torch_class)}
    return type(torch_class.__name__, (torch_class,), members)


globals().update(
    {
        name: _scheduler_class(value)
        for name, value in vars(_torch).items()
        if _inspect.isclass(value) and issubclass(value, _torch.LRScheduler) and not name.startswith("_")
    }
)
_LRScheduler = LRScheduler  # type: ignore[name-defined]  # noqa: F821  # as PyTorch's files name it, too
__all__ = [name for name in globals() if not name.startswith("_") and name not in ("annotations", "Any")]


def __getattr__(name: str) -> Any:
    raise _absent("bridge.optim.lr_scheduler", name, __all__, _torch)
