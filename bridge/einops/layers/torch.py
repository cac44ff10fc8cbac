"""einops.layers.torch as Cells: `Rearrange`, `Reduce` and `EinMix`, with its arguments and initial values."""

from __future__ import annotations

from einops.layers import torch as _layers

from bridge.nn.layer import layer_class as _layer_class

EinMix = _layer_class(_layers.EinMix)
Rearrange = _layer_class(_layers.Rearrange)
Reduce = _layer_class(_layers.Reduce)

__all__ = ["EinMix", "Rearrange", "Reduce"]
