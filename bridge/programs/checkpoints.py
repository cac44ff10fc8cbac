"""Checkpoints of PyTorch's older kind, `use_reentrant=True`: their backward runs PyTorch's engine inside of it, and
refuses to run for chosen tensors, as MindSpore asks for it. The newer kind computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.utils.checkpoint

from bridge.programs.replaced import Replacement


class _NotReentrant:
    """In the place of PyTorch's function with a backward of its own."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(
            function, *args, use_reentrant=False, preserve_rng_state=preserve_rng_state
        )


REPLACEMENT = Replacement(torch.utils.checkpoint, "CheckpointFunction", _NotReentrant)
