"""The layers that are made from the classes of the installed torch.nn."""

from __future__ import annotations

import inspect as _inspect

import torch as _torch

from bridge.nn.layer import layer_class as _layer_class

# bridge.nn has its own, or has a sentence for them.
_NOT_MADE = {
    *("Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"),
    *("Container", "DataParallel"),
}

globals().update(
    {
        name: _layer_class(value)
        for name, value in vars(_torch.nn).items()
        if _inspect.isclass(value) and issubclass(value, _torch.nn.Module) and name not in _NOT_MADE
    }
)
__all__ = [name for name in globals() if not name.startswith("_") and name != "annotations"]
