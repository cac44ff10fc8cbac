"""Functions of which some arguments have no derivative in PyTorch: the weights of classes, say.

PyTorch refuses such an argument if it requires a gradient. A program cannot know whether MindSpore is asked for that
gradient or for another's, so to these functions the argument is a constant. Its gradient is zero, as where an operator
has none.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import torch

from bridge.programs.replaced import Replacement

# Who has them. Each has the name of its operator, whose schema has the positions of the arguments.
_FUNCTIONS = {
    torch: (
        "binary_cross_entropy_with_logits", "fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine",
    ),
    torch._C._nn: (
        "binary_cross_entropy", "cross_entropy_loss", "multi_margin_loss", "nll_loss_nd", "soft_margin_loss",
    ),
}  # fmt: skip
_REFUSAL = re.compile(r"is not differentiable with respect to argument '(\w+)'")


def _tolerant(own: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function, which takes those arguments for constants that PyTorch refuses. Cross entropy refuses weights only
    of classes, and not of probabilities."""

    @functools.wraps(own)
    def tolerant(*args: Any, **kwargs: Any) -> Any:
        try:
            return own(*args, **kwargs)
        except RuntimeError as error:
            refused = _REFUSAL.search(str(error))
            if refused is None:
                raise
        # Of several, PyTorch names the first.
        args, kwargs = _with_constant(name, refused[1], args, kwargs)
        return tolerant(*args, **kwargs)

    return tolerant


def _with_constant(name: str, argument: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if argument in kwargs:
        return args, kwargs | {argument: kwargs[argument].detach()}
    operator = getattr(torch.ops.aten, name)
    schema = getattr(operator, operator.overloads()[0])._schema
    position = [each.name for each in schema.arguments].index(argument)
    return (*args[:position], args[position].detach(), *args[position + 1 :]), kwargs


REPLACEMENTS = [
    Replacement(holder, name, _tolerant(getattr(holder, name), name))
    for holder, names in _FUNCTIONS.items()
    for name in names
]
