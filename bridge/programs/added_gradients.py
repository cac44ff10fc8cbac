"""Gradients as `torch.autograd.grad` gives them, and what a module's own backward adds to the `grad` of leaves besides,
as one does that calls `backward` itself: reversible layers, say."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bridge.programs.in_cpp import library


def gradients_of(
    results: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor] | None = None,
    create_graph: bool = False,
) -> list[torch.Tensor | None]:
    """For each tensor its gradient, dense; None if it requires none, or if the results do not depend on it. Leaves have
    the `grad` that they had before.

    Args:
        results: what is differentiated, if it requires a gradient.
        tensors: where the gradients are found.
        given: those of the results; None for ones.
        create_graph: whether the gradients have gradients.
    """
    # A backward pass is outside of autocast. C++ sees to that; by these functions a tape knows it (inner_casts.py).
    casting = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    for kind in casting:
        torch.set_autocast_enabled(kind, False)
    try:
        found: list[torch.Tensor | None] = library().ms_ext_gradients_of(
            [*results], [*tensors], None if given is None else [*given], create_graph
        )
        return found
    finally:
        for kind in casting:
            torch.set_autocast_enabled(kind, True)
