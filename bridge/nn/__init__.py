"""PyTorch's layers as Cells: the classes of torch.nn, with the same arguments, initial values and names.

from bridge import nn as tnn

layer = tnn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)

Every class of the installed torch.nn is here. See docs/layers.md.
"""

from __future__ import annotations

import sys as _sys
from typing import Any

import torch as _torch

from bridge.nn import init as init
from bridge.nn import utils as utils
from bridge.nn.containers import ModuleDict as ModuleDict
from bridge.nn.containers import ModuleList as ModuleList
from bridge.nn.containers import ParameterDict as ParameterDict
from bridge.nn.containers import ParameterList as ParameterList
from bridge.nn.containers import Sequential as Sequential
from bridge.nn.layers import *  # noqa: F403
from bridge.nn.module import Module as Module
from bridge.nn.parameter import Buffer as Buffer
from bridge.nn.parameter import Parameter as Parameter
from bridge.nn.state_dict import load_state_dict as load_state_dict
from bridge.nn.state_dict import state_dict as state_dict
from bridge.torch import nn as _torch_nn
from bridge.torch.names import absent as _absent
from bridge.torch.nn import functional as functional

_UNAVAILABLE = {
    "DataParallel": "MindSpore trains on many devices by msrun and mindspore.set_auto_parallel_context",
    "Container": "PyTorch has deprecated it: derive from bridge.nn.Module",
    "UninitializedParameter": "lazy layers make their Parameters at their first call",
    "UninitializedBuffer": "lazy layers make their buffers at their first call",
}


__all__ = [name for name in globals() if not name.startswith("_") and name not in ("annotations", "Any")]

# Ported files write `torch.nn.Linear`, too, and import from `torch.nn.utils.rnn` and `torch.nn.functional`.
vars(_torch_nn).update({name: globals()[name] for name in __all__})
_sys.modules[f"{__name__}.functional"] = functional
_sys.modules.update(
    {
        f"{_torch_nn.__name__}.{name.removeprefix(f'{__name__}.')}": module
        for name, module in list(_sys.modules.items())
        if name.startswith(tuple(f"{__name__}.{part}" for part in ("init", "parameter", "utils")))
    }
)


def __getattr__(name: str) -> Any:
    if name in _UNAVAILABLE:
        raise AttributeError(f"bridge.nn has no {name}: {_UNAVAILABLE[name]}")
    raise _absent("bridge.nn", name, __all__, _torch.nn)
