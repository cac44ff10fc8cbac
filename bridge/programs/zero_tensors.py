"""Zeros without memory, which PyTorch makes in gradients of forward mode: `torch.func.jacfwd`, `hessian`."""

from __future__ import annotations

import functools
import warnings

import torch

MADE = torch.ops.aten._efficientzerotensor.default
# PyTorch has kernels of its own for them, past all modes, which do what those of each device do.
_VIEWS = "view", "as_strided", "_reshape_alias"
_LIBRARY = torch.library.Library("aten", "IMPL")


@functools.cache
def show_views() -> None:
    """Have modes see views of such zeros. Without data these would be no tensors of the capture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of each kernel that another one replaces
        for name in _VIEWS:
            _LIBRARY.impl(name, torch.library.fallthrough_kernel, "ZeroTensor")
