"""The CTC loss on a tape. The lengths of its targets are data, and decide about the size of what forward saves.

So backward makes the loss again, instead of taking what is saved. PyTorch's composite for lists of lengths makes
tensors of them in C++, where a tape's tensors have no data: it gets them as tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

FORWARD = torch.ops.aten._ctc_loss.Tensor
BACKWARD = torch.ops.aten._ctc_loss_backward.Tensor
_FUNCTIONS = (torch.ctc_loss, torch.nn.functional.ctc_loss)
# The positions of both lengths among their arguments, and of both results among those of BACKWARD.
_LENGTHS = {"input_lengths": 2, "target_lengths": 3}
SAVED = slice(5, 7)


class LengthsAsTensors(TorchFunctionMode):
    """Calls the CTC loss with tensors for lists of lengths."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FUNCTIONS:
            args = [_tensor(value) if i in _LENGTHS.values() else value for i, value in enumerate(args)]
            kwargs = {key: _tensor(value) if key in _LENGTHS else value for key, value in kwargs.items()}
        return func(*args, **kwargs)


def _tensor(lengths: Any) -> Any:
    return torch.tensor(lengths) if isinstance(lengths, (list, tuple)) else lengths


def results(log_probs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Results of FORWARD, of which the second has a size of its own."""
    steps, batch, _ = log_probs.shape
    return log_probs.new_empty(batch), log_probs.new_empty(batch, steps, 1)


def arguments_again(backward: Sequence[Any]) -> list[Any]:
    """FORWARD's arguments, of BACKWARD's."""
    return [*backward[1 : SAVED.start], *backward[SAVED.stop :]]
