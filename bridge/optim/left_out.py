"""Gradients of what a loss does not depend on: MindSpore has zeros for them, and PyTorch has none."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from mindspore.communication import get_group_size


def without_zeros(gradients: Sequence[torch.Tensor | None], positions: Sequence[int]) -> list[torch.Tensor | None]:
    """The gradients, None for those of these positions that are zero.

    Others than the backward pass that has found nothing may have made one: another rank, whose gradients are added, or
    an operator of MindSpore's. Ranks have to do the same, so with several all gradients are as MindSpore has them. On
    a GPU this waits.
    """
    found = [*gradients]
    asked = [position for position in positions if found[position] is not None]
    if not asked or get_group_size() > 1:
        return found
    are_any = torch.stack([found[position].any() for position in asked]).tolist()  # type: ignore[union-attr]
    for position, is_any in zip(asked, are_any, strict=True):
        if not is_any:
            found[position] = None
    return found
