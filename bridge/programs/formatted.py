"""Numbers of tensors in strings, as `self.experts[f"expert_{index}"]` has them."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from bridge.programs.replaced import Replacement

_OWN = torch.Tensor.__format__


def _format(tensor: torch.Tensor, specification: str) -> str:
    """PyTorch's puts in the number of a tensor of its own class only. Of others the text says what they are."""
    if isinstance(tensor, FakeTensor) and tensor.dim() == 0:
        return format(tensor.item(), specification)
    return _OWN(tensor, specification)


FORMAT = Replacement(torch.Tensor, "__format__", _format)
