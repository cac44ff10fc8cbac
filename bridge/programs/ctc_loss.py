"""The CTC loss on a tape. The lengths of its targets are data, and decide about the size of what forward saves.

So backward makes the loss again, instead of taking what is saved. PyTorch's composite for lists of lengths makes
tensors of them in C++, where a tape's tensors have no data: it gets them as tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bridge.programs.replaced import Replacement

FORWARD = torch.ops.aten._ctc_loss.Tensor
BACKWARD = torch.ops.aten._ctc_loss_backward.Tensor
# The positions of both results of FORWARD among the arguments of BACKWARD.
SAVED = slice(5, 7)
_ctc_loss = torch.ctc_loss


def _of_tensors(log_probs: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    named = {key: _tensor(value, log_probs) for key, value in kwargs.items()}
    return _ctc_loss(log_probs, *(_tensor(value, log_probs) for value in args), **named)


def _tensor(lengths: Any, like: torch.Tensor) -> Any:
    return torch.tensor(lengths, device=like.device) if isinstance(lengths, (list, tuple)) else lengths


LENGTHS_AS_TENSORS = Replacement(torch, "ctc_loss", _of_tensors)


def results(log_probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Results of FORWARD, of which the second has a size of its own."""
    steps, batch, _ = log_probs.shape
    return log_probs.new_empty(batch), log_probs.new_empty(batch, steps, 1)


def arguments_again(backward: Sequence[Any]) -> list[Any]:
    """FORWARD's arguments, of BACKWARD's."""
    return [*backward[1 : SAVED.start], *backward[SAVED.stop :]]
