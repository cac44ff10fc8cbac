"""`inplace=True` of a layer: MindSpore's tensors are values, so the layer returns a new one."""

from __future__ import annotations

import torch

from bridge.torch.in_place import warn_of_new_tensors


def returning_new_tensors(module: torch.nn.Module) -> torch.nn.Module:
    """The module, which changes no argument from now on."""
    for inner in module.modules():
        if vars(inner).get("inplace") is True:
            vars(inner)["inplace"] = False
            warn_of_new_tensors(type(inner).__name__, stacklevel=4)
    return module
