"""PyTorch's torch.nn.utils for MindSpore: gradients are values here, so functions take them and give them back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mindspore as _ms
import torch as _torch

from bridge.nn.utils import parametrizations as parametrizations
from bridge.nn.utils import parametrize as parametrize
from bridge.nn.utils import prune as prune
from bridge.nn.utils import rnn as rnn
from bridge.nn.utils.function import TensorFunction as _TensorFunction
from bridge.nn.utils.on_layers import on_layers as _on_layers
from bridge.nn.utils.vectors import parameters_to_vector as parameters_to_vector
from bridge.nn.utils.vectors import vector_to_parameters as vector_to_parameters

# PyTorch's functions that change a module.
globals().update(
    {
        name: _on_layers(getattr(_torch.nn.utils, name))
        for name in (
            "fuse_conv_bn_eval", "fuse_linear_bn_eval", "remove_spectral_norm", "remove_weight_norm", "spectral_norm",
            "weight_norm",
        )
    }
)  # fmt: skip


def _clipped(function: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
    """What a function of torch.nn.utils makes of gradients, or of one, and what it returns."""
    if isinstance(gradients, _torch.Tensor):
        (gradient,), found = _clipped(function, [gradients], *args, **kwargs)
        return gradient, found
    holders = [_torch.empty_like(gradient) for gradient in gradients]
    for holder, gradient in zip(holders, gradients, strict=True):
        holder.grad = gradient.clone()
    found = function(holders, *args, **kwargs)
    return tuple(holder.grad for holder in holders), found


def _by_norm(*args: Any, **kwargs: Any) -> Any:
    return _clipped(_torch.nn.utils.clip_grad_norm_, *args, **kwargs)


def _by_value(*args: Any, **kwargs: Any) -> Any:
    return _clipped(_torch.nn.utils.clip_grad_value_, *args, **kwargs)[0]


def _by_known_norm(*args: Any, **kwargs: Any) -> Any:
    return _clipped(_torch.nn.utils.clip_grads_with_norm_, *args, **kwargs)[0]


class _OfGradients(_TensorFunction):
    """Takes gradients; says so to whoever gives the Parameters of a network, as PyTorch's programs do."""

    def __call__(self, gradients: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        if not isinstance(gradients, _ms.Tensor):
            gradients = tuple(gradients)
            if any(isinstance(gradient, _ms.Parameter) and gradient.requires_grad for gradient in gradients):
                raise TypeError(
                    f"{self.name} takes gradients, which are values here, and gives them back clipped: it was given "
                    "Parameters (gradients, norm = clip_grad_norm_(gradients, 1.0)). Those that gradients are added up "
                    "in have requires_grad=False"
                )
        return super().__call__(gradients, *args, **kwargs)


# clip_grad_norm_(gradients, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None): the clipped gradients and
# their norm before.
clip_grad_norm_ = _OfGradients(_by_norm, "clip_grad_norm_")
# clip_grad_value_(gradients, clip_value, foreach=None): the clipped gradients.
clip_grad_value_ = _OfGradients(_by_value, "clip_grad_value_")
# clip_grads_with_norm_(gradients, max_norm, total_norm, foreach=None): the clipped gradients.
clip_grads_with_norm_ = _OfGradients(_by_known_norm, "clip_grads_with_norm_")
# get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None): the norm of all their values.
get_total_norm = _TensorFunction(_torch.nn.utils.get_total_norm, "get_total_norm")


def __getattr__(name: str) -> Any:
    raise AttributeError(f"bridge.nn.utils has no {name}")
