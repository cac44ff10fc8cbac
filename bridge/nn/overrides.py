"""What the module that a layer holds would not call: methods of the layer's class, and hooks of layers inside it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import mindspore as ms
import torch
from torch.nn.modules.lazy import LazyModuleMixin

from bridge.programs.cell import ModuleCell

# Methods that PyTorch's constructors call last, to draw the initial values.
RESETS = ("reset_parameters", "_reset_parameters")


def refuse_overrides(layer: type[ModuleCell], torch_class: type[torch.nn.Module]) -> None:
    """Raise TypeError if a class of layers has a method that nothing would call."""
    if issubclass(torch_class, LazyModuleMixin):
        raise TypeError(
            f"{layer.__name__} derives from {torch_class.__name__}, whose layers become others at their first call: "
            "derive from the class without Lazy, or have the lazy layer as an attribute"
        )
    if layer.construct is not ModuleCell.construct:
        return
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


def registering(name: str) -> Callable[..., Any]:
    """A Cell's method that registers a hook; it raises RuntimeError for a layer inside another."""
    own = getattr(ms.nn.Cell, name)

    @functools.wraps(own)
    def register(self: Any, *args: Any, **kwargs: Any) -> Any:
        around = vars(self).get("around")
        if around is not None:
            raise RuntimeError(
                f"{name}: {around} runs as one module, with this {type(self).__name__} inside it, and would not call "
                f"the hook: register it for the {around}"
            )
        return own(self, *args, **kwargs)

    return register
