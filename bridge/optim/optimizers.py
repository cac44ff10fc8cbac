"""The optimizers that are made from the classes of the installed torch.optim."""

from __future__ import annotations

import inspect as _inspect

import torch as _torch

from bridge.optim.optimizer import optimizer_class as _optimizer_class

_NOT_MADE = {"Optimizer", "SparseAdam"}  # bridge.optim has its own, or has a sentence for them

globals().update(
    {
        name: _optimizer_class(value)
        for name, value in vars(_torch.optim).items()
        if _inspect.isclass(value) and issubclass(value, _torch.optim.Optimizer) and name not in _NOT_MADE
    }
)
__all__ = [name for name in globals() if not name.startswith("_") and name != "annotations"]
