"""PyTorch's optimizers as MindSpore's: the classes of torch.optim, over MindSpore's Parameters.

import bridge
from bridge import optim

optimizer = optim.AdamW(net.trainable_params(), lr=1e-3, weight_decay=0.01)

Every optimizer of the installed torch.optim is here. See docs/layers.md.
"""

from __future__ import annotations

from typing import Any

import torch as _torch

from bridge.optim import lr_scheduler as lr_scheduler
from bridge.optim.optimizer import Optimizer as Optimizer
from bridge.optim.optimizers import *  # noqa: F403
from bridge.torch.names import absent as _absent

_UNAVAILABLE = {
    "SparseAdam": "MindSpore's gradients are dense here: use Adam",
    "swa_utils": "torch.optim.swa_utils.AveragedModel averages a module of bridge.cell as it is",
}

__all__ = [name for name in globals() if not name.startswith("_") and name not in ("annotations", "Any", "optimizer")]


def __getattr__(name: str) -> Any:
    if name in _UNAVAILABLE:
        raise AttributeError(f"bridge.optim has no {name}: {_UNAVAILABLE[name]}")
    raise _absent("bridge.optim", name, __all__, _torch.optim)
