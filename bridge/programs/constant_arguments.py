"""Losses of which one argument has no derivative in PyTorch: the weights of classes, say.

PyTorch refuses such an argument if it requires a gradient. A program cannot know whether MindSpore is asked for that
gradient or for another's, so to these losses the argument is a constant. Its gradient is zero, as where an operator has
none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from bridge.programs.replaced import Replacement

# Who has the function, and the position of the argument.
_POSITIONS = {
    "binary_cross_entropy": (torch._C._nn, 2),
    "binary_cross_entropy_with_logits": (torch, 2),
    "cross_entropy_loss": (torch._C._nn, 2),
    "multi_margin_loss": (torch._C._nn, 4),
    "nll_loss_nd": (torch._C._nn, 2),
    "soft_margin_loss": (torch._C._nn, 1),
}
_REFUSAL = "is not differentiable with respect to argument"


def _tolerant(own: Callable[..., Any], position: int) -> Callable[..., Any]:
    """The function, which takes the argument for a constant if PyTorch refuses it. Cross entropy refuses weights only
    of classes, and not of probabilities."""

    @functools.wraps(own)
    def loss(*args: Any, **kwargs: Any) -> Any:
        try:
            return own(*args, **kwargs)
        except RuntimeError as error:
            if _REFUSAL not in str(error) or len(args) <= position:
                raise
        constant = args[position].detach()
        return own(*args[:position], constant, *args[position + 1 :], **kwargs)

    return loss


REPLACEMENTS = [
    Replacement(holder, name, _tolerant(getattr(holder, name), position))
    for name, (holder, position) in _POSITIONS.items()
]
