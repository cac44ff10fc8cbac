"""torch.nn.utils.parametrize for layers."""

from __future__ import annotations

from typing import Any

from torch.nn.utils import parametrize as _torch

from bridge.nn.utils.on_layers import functions_on_layers as _functions_on_layers

globals().update(_functions_on_layers(_torch))


def __getattr__(name: str) -> Any:
    raise AttributeError(f"bridge.nn.utils.parametrize has no {name}: it has PyTorch's functions of one module")
