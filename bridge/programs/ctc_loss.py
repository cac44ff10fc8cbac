"""The CTC loss on a tape. The lengths of its targets are data, and decide about the size of what forward saves.

So backward makes the loss again, instead of taking what is saved. PyTorch's composite for lists of lengths makes
tensors of them in C++, where a tape's tensors have no data: it gets them as tensors. That for tensors divides by them,
where they have to be on the device of the loss; with data it takes the numbers instead.
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


def _of_tensors(
    log_probs: torch.Tensor, targets: torch.Tensor, input_lengths: Any, target_lengths: Any, *args: Any, **kwargs: Any
) -> torch.Tensor:
    lengths = _tensor(input_lengths, log_probs), _tensor(target_lengths, log_probs)
    return _ctc_loss(log_probs, targets, *lengths, *args, **kwargs)


def _tensor(lengths: Any, like: torch.Tensor) -> Any:
    if isinstance(lengths, (list, tuple)):
        return torch.tensor(lengths, device=like.device)
    return lengths.to(like.device) if isinstance(lengths, torch.Tensor) else lengths


LENGTHS_AS_TENSORS = Replacement(torch, "ctc_loss", _of_tensors)


def results(log_probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Results of FORWARD, of which the second has a size of its own."""
    steps, batch, _ = log_probs.shape
    return log_probs.new_empty(batch), log_probs.new_empty(batch, steps, 1)


def arguments_again(backward: Sequence[Any]) -> list[Any]:
    """FORWARD's arguments, of BACKWARD's."""
    return [*backward[1 : SAVED.start], *backward[SAVED.stop :]]
