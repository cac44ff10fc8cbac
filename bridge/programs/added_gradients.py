"""Gradients as `torch.autograd.grad` gives them, and what a module's own backward adds to the `grad` of leaves besides,
as one does that calls `backward` itself: reversible layers, say."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def gradients_of(
    results: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor],
    create_graph: bool = False,
) -> list[torch.Tensor | None]:
    """For each leaf its gradient; None if the results do not depend on it. Leaves have no other `grad` afterwards.

    Args:
        results: what is differentiated.
        leaves: where the gradients are found.
        given: those of the results.
        create_graph: whether the gradients have gradients.
    """
    before = [leaf.grad if leaf.is_leaf else None for leaf in leaves]
    try:
        _set_grad(leaves, [None] * len(leaves))
        found = torch.autograd.grad(results, leaves, given, create_graph=create_graph, allow_unused=True)
        added = [leaf.grad if leaf.is_leaf else None for leaf in leaves]
    finally:
        _set_grad(leaves, before)
    with torch.set_grad_enabled(create_graph):
        return [_sum(one, other) for one, other in zip(added, found, strict=True)]


def _set_grad(leaves: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> None:
    for leaf, gradient in zip(leaves, gradients, strict=True):
        if leaf.is_leaf and leaf.grad is not gradient:
            leaf.grad = gradient


def _sum(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other
