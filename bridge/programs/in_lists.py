"""Lists of tensors that PyTorch's Python takes in one call, as `clip_grad_norm_` does. On a GPU that call rounds
otherwise than one for each tensor. PyTorch asks for the tensors' types, and a graph's are tensors without data."""

from __future__ import annotations

from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer
from torch.utils import _foreach_utils

from bridge.programs.replaced import Replacement

REPLACEMENTS = [
    Replacement(module, "_foreach_supported_types", [*module._foreach_supported_types, FakeTensor])
    for module in (_foreach_utils, optimizer)
]
