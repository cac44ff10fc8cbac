"""PyTorch's torch.nn.utils for MindSpore: gradients are values here, so functions take them and give them back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch as _torch

from bridge.nn.utils import rnn as rnn
from bridge.nn.utils.function import TensorFunction as _TensorFunction

_INSTEAD = {
    "weight_norm": "give the layer's module to torch.nn.utils, and that to bridge.cell",
    "spectral_norm": "give the layer's module to torch.nn.utils, and that to bridge.cell",
    "parametrize": "give the layer's module to torch.nn.utils, and that to bridge.cell",
    "parametrizations": "give the layer's module to torch.nn.utils, and that to bridge.cell",
    "prune": "give the layer's module to torch.nn.utils, and that to bridge.cell",
    "parameters_to_vector": "concatenate the Parameters: mindspore.ops.concat",
    "vector_to_parameters": "assign the parts: Parameter.set_data",
}


def _clipped(function: Any, gradients: Sequence[_torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    """What a function of torch.nn.utils makes of gradients, and what it returns."""
    holders = [_torch.empty_like(gradient) for gradient in gradients]
    for holder, gradient in zip(holders, gradients, strict=True):
        holder.grad = gradient.clone()
    found = function(holders, *args, **kwargs)
    return tuple(holder.grad for holder in holders), found


def _by_norm(*args: Any, **kwargs: Any) -> Any:
    return _clipped(_torch.nn.utils.clip_grad_norm_, *args, **kwargs)


def _by_value(*args: Any, **kwargs: Any) -> Any:
    return _clipped(_torch.nn.utils.clip_grad_value_, *args, **kwargs)[0]


# clip_grad_norm_(gradients, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None): the clipped gradients and
# their norm before.
clip_grad_norm_ = _TensorFunction(_by_norm, "clip_grad_norm_")
# clip_grad_value_(gradients, clip_value, foreach=None): the clipped gradients.
clip_grad_value_ = _TensorFunction(_by_value, "clip_grad_value_")


def __getattr__(name: str) -> Any:
    if name in _INSTEAD:
        raise AttributeError(f"bridge.nn.utils has no {name}: {_INSTEAD[name]}")
    raise AttributeError(f"bridge.nn.utils has no {name}")
