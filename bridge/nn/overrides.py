"""What a class that derives from a layer may override: the PyTorch module that it holds calls its own methods."""

from __future__ import annotations

import inspect
from typing import Any

import torch

# Methods that PyTorch's constructors call last, to draw the initial values.
RESETS = ("reset_parameters", "_reset_parameters")


def refuse_overrides(layer: type, torch_class: type[torch.nn.Module]) -> None:
    """Raise TypeError if a class of layers has a method that nothing would call."""
    for name, member in vars(layer).items():
        is_general = name.startswith("__") or hasattr(torch.nn.Module, name) or name in RESETS
        if not is_general and inspect.isfunction(member) and inspect.isfunction(getattr(torch_class, name, None)):
            raise TypeError(
                f"{layer.__name__}.{name}: PyTorch's {torch_class.__name__} would call its own {name}, not this one: "
                "write a construct that calls it, or derive from PyTorch's class and call bridge.cell"
            )


def made(torch_class: type[torch.nn.Module], resets: list[str], *args: Any, **kwargs: Any) -> torch.nn.Module:
    """A module whose constructor leaves these methods to its caller."""
    if not resets:
        return torch_class(*args, **kwargs)
    without = type(torch_class.__name__, (torch_class,), dict.fromkeys(resets, _nothing))
    module = without(*args, **kwargs)
    module.__class__ = torch_class
    return module


def _nothing(module: torch.nn.Module) -> None:
    """Takes the place of a method that draws initial values."""
