"""Functions of torch.nn.utils that change a module, for layers: PyTorch's own, on the module that the layer holds."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from bridge._start import start_on
from bridge.nn.layer import Layer
from bridge.op import devices
from bridge.programs.constructor import to_torch


def on_layers(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which takes layers for modules, changes them, and gives what PyTorch's gives."""

    @functools.wraps(function)
    def changed(*args: Any, **kwargs: Any) -> Any:
        layers = [value for value in (*args, *kwargs.values()) if isinstance(value, Layer)]
        if not layers:
            raise TypeError(f"{function.__name__} takes layers of bridge.nn, and was given none")
        start_on(devices.target())  # which seeds PyTorch as MindSpore was seeded
        for layer in layers:
            layer.program.follow()
        found = function(*map(_to_torch, args), **{key: _to_torch(value) for key, value in kwargs.items()})
        for layer in layers:
            layer.run(layer.module)
        given = next((layer for layer in layers if layer.module is found), None)
        if given is None and isinstance(found, torch.nn.Module):
            return Layer.of(found)
        return found if given is None else given

    return changed


def _to_torch(value: Any) -> Any:
    return value.module if isinstance(value, Layer) else to_torch(value)


def functions_on_layers(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The public functions of one of PyTorch's modules whose first argument is a module."""
    return {
        name: on_layers(value)
        for name, value in vars(module).items()
        if inspect.isfunction(value) and not name.startswith("_") and value.__module__ == module.__name__
        if next(iter(inspect.signature(value).parameters), "") in ("module", "conv", "linear")
    }
