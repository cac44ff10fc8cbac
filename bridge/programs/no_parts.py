"""Parameters and buffers of modules that are no part of the one in a graph, as those in a plain list."""

from __future__ import annotations

import gc

import torch

from bridge.programs.memory import storage_of


def words(tensor: torch.Tensor) -> str:
    """What an error says of a tensor that a program writes to and a graph does not keep."""
    found = _owner(tensor)
    if found is None:
        return (
            f"it writes to a tensor of shape {list(tensor.shape)} that is neither a parameter nor a persistent buffer, "
            "which a graph does not keep: register it as a buffer"
        )
    kind, owner = found
    return (
        f"it writes to {kind} of a {owner} that is not a part of the module, which a graph does not keep: make it a "
        "part, as an attribute of the module or in a torch.nn.ModuleList"
    )


def _owner(tensor: torch.Tensor) -> tuple[str, str] | None:
    """Which parameter or persistent buffer it is, and of which class of module; None if it is none. All modules of the
    process are looked at."""
    for module in gc.get_objects():
        if not issubclass(type(module), torch.nn.Module):
            continue
        own = vars(module)
        left_out = own.get("_non_persistent_buffers_set", ())
        for kind, tensors in (("parameter", own.get("_parameters", {})), ("buffer", own.get("_buffers", {}))):
            for name, other in tensors.items():
                if isinstance(other, torch.Tensor) and name not in left_out and _are_same(tensor, other):
                    return f"{kind} '{name}'", type(module).__name__
    return None


def _are_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    is_plain = other.layout is torch.strided and type(other) in (torch.Tensor, torch.nn.Parameter)
    return is_plain and storage_of(one) == storage_of(other)
