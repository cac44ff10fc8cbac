"""PyTorch's optimizers as MindSpore's: the classes of torch.optim, over MindSpore's Parameters.

import bridge
from bridge import optim

optimizer = optim.AdamW(net.trainable_params(), lr=1e-3, weight_decay=0.01)

Every optimizer of the installed torch.optim is here. See docs/layers.md.
"""

from __future__ import annotations

import inspect as _inspect
from typing import Any

import torch as _torch

from bridge.optim import lr_scheduler as lr_scheduler
from bridge.optim.optimizer import Optimizer as Optimizer
from bridge.optim.optimizer import optimizer_class

_UNAVAILABLE = {
    "SparseAdam": "MindSpore's gradients are dense here: use Adam",
    "swa_utils": "average PyTorch's tensors by optimizer.torch_optimizer",
}

globals().update(
    {
        name: optimizer_class(value)
        for name, value in vars(_torch.optim).items()
        if _inspect.isclass(value)
        and issubclass(value, _torch.optim.Optimizer)
        and value is not _torch.optim.Optimizer
        and name not in _UNAVAILABLE
    }
)
__all__ = [name for name in globals() if not name.startswith("_") and name not in ("annotations", "Any", "optimizer")]


def __getattr__(name: str) -> Any:
    if name in _UNAVAILABLE:
        raise AttributeError(f"bridge.optim has no {name}: {_UNAVAILABLE[name]}")
    raise AttributeError(f"bridge.optim has no {name}, and neither has the installed torch.optim {_torch.__version__}")
