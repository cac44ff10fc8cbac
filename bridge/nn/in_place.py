"""`inplace=True` of a layer: MindSpore's tensors are values, so the layer returns a new one."""

from __future__ import annotations

import warnings

import torch


def returning_new_tensors(module: torch.nn.Module) -> torch.nn.Module:
    """The module, which changes no argument from now on. A warning says so, because code may read the argument."""
    for inner in module.modules():
        if vars(inner).get("inplace") is True:
            vars(inner)["inplace"] = False
            warnings.warn(
                f"{type(inner).__name__}(inplace=True) returns a new tensor here, and its argument keeps its values",
                stacklevel=3,
            )
    return module
