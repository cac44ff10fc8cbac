"""PyTorch's gradients of one call, of the first or the second order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .calls import SEED, Call, tensors_in
from .compare import flatten
from .reference import copies, repeatable
from .verdict import Skip, skip_on_error

Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Expected:
    """PyTorch's gradients of one call, and what they are the gradients of.

    Attributes:
        gradients: one for each input.
        places: of the differentiable results among all.
        cotangents: one for each of these results.
        inputs: those that can have a gradient.
        second_cotangents: one for each first gradient, where the gradients are of the second order.
    """

    gradients: list[Any]
    places: list[int]
    cotangents: list[torch.Tensor]
    inputs: list[torch.Tensor]
    second_cotangents: list[torch.Tensor] = field(default_factory=list)


def can_require_grad(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def expected(call: Call, seeded: bool, second: bool) -> Expected:
    """PyTorch's gradients, for random cotangents that are always the same.

    Raises:
        Skip: PyTorch refuses the call or has no gradient of this order, or does not repeat itself.
    """
    return repeatable(lambda: _differentiate(call, second), lambda found: found.gradients, seeded)


def _differentiate(call: Call, second: bool) -> Expected:
    args, kwargs = copies(call)
    inputs = [t.requires_grad_() for t in tensors_in([args, kwargs]) if can_require_grad(t)]
    with skip_on_error("PyTorch refuses these arguments"):
        outputs = flatten(call.op(*args, **kwargs))
    places = [i for i, o in enumerate(outputs) if isinstance(o, torch.Tensor) and o.requires_grad]
    if not inputs or not places:
        raise Skip("not differentiable")
    results = [outputs[i] for i in places]
    generator = torch.Generator().manual_seed(SEED)
    cotangents = [_random_like(o, generator) for o in results]
    with skip_on_error("PyTorch has no gradient here"):
        grads = torch.autograd.grad(results, inputs, cotangents, create_graph=second, allow_unused=True)
    if all(grad is None for grad in grads):  # an overload of which autograd knows nothing
        raise Skip("PyTorch has no gradient here")
    if not second:
        return Expected(_dense(grads, inputs), places, cotangents, inputs)
    first = [torch.zeros_like(t) if g is None else g for g, t in zip(grads, inputs, strict=True)]
    second_cotangents = [_random_like(g, generator) for g in first]
    return Expected(_again(first, second_cotangents, inputs), places, cotangents, inputs, second_cotangents)


def _again(first: Tensors, cotangents: Tensors, inputs: Tensors) -> list[torch.Tensor]:
    """The gradients of the first gradients."""
    pairs = [(g, c) for g, c in zip(first, cotangents, strict=True) if g.requires_grad]
    if not pairs:
        raise Skip("not differentiable twice")
    with skip_on_error("PyTorch has no second gradient here"):
        differentiable, weights = zip(*pairs, strict=True)
        return _dense(torch.autograd.grad(differentiable, inputs, weights, allow_unused=True), inputs)


def _dense(grads: Sequence[torch.Tensor | None], inputs: Tensors) -> list[torch.Tensor]:
    """Zeros for a gradient that is missing. MindSpore has no sparse gradients: the bridge gives the dense one."""
    return [torch.zeros_like(t) if g is None else g.to_dense() for g, t in zip(grads, inputs, strict=True)]


def _random_like(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A fixed random cotangent, drawn in double so that every dtype has one."""
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return torch.randn(tensor.shape, dtype=wide, generator=generator).to(tensor)
