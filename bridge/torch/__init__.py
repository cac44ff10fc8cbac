"""PyTorch's functions on MindSpore's tensors, under PyTorch's names: `T.einsum`, `T.linalg.svd`, `F.cross_entropy`.

    from bridge import torch as T
    from bridge.torch.nn import functional as F

Each takes the arguments that PyTorch's takes. The methods of PyTorch's tensors are functions here: `x.view(2, -1)` is
`T.view(x, 2, -1)`. A dtype is MindSpore's, so that `T.float32 is mindspore.float32`.
"""

from __future__ import annotations

from typing import Any

import mindspore
import torch

from bridge import _start
from bridge.torch import default_dtype, fft, linalg, names, nn, special
from bridge.torch.assertion import Assertion
from bridge.torch.function import Function
from bridge.torch.functions import *  # noqa: F403
from bridge.torch.imports import explain_absent_modules

explain_absent_modules()

# These stand in the place of PyTorch's.
manual_seed = _start.manual_seed
get_default_dtype = default_dtype.get_default_dtype
set_default_dtype = default_dtype.set_default_dtype
Tensor = mindspore.Tensor
dtype = mindspore.dtype.Type
finfo = Function("torch.finfo", torch.finfo)
iinfo = Function("torch.iinfo", torch.iinfo)
_assert = Assertion("torch._assert")
__version__ = torch.__version__

__all__ = ["fft", "get_default_dtype", "linalg", "manual_seed", "nn", "set_default_dtype", "special"]


def __getattr__(name: str) -> Any:
    return names.missing("torch", name, globals())
