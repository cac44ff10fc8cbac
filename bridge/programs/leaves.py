"""`x.requires_grad = True`, as Wav2Vec2 writes it for a checkpoint. PyTorch takes it for leaves only.

In a program every floating input requires a gradient, because MindSpore may ask for it. What follows from an input is
no leaf then, and has what is asked for.
"""

from __future__ import annotations

from typing import Any

import torch

from bridge.programs.replaced import Replacement

NAME = "requires_grad"
_own: Any = torch._C.TensorBase.requires_grad


def _set(tensor: torch.Tensor, value: bool) -> None:
    if not (value and tensor.requires_grad and not tensor.is_leaf):
        _own.__set__(tensor, value)


REPLACEMENT = Replacement(torch.Tensor, NAME, property(_own.__get__, _set))
