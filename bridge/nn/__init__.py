"""PyTorch's layers as Cells: the classes of torch.nn, with the same arguments, initial values and names.

from bridge import nn as tnn

layer = tnn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)

Every class of the installed torch.nn is here. See docs/layers.md.
"""

from __future__ import annotations

import difflib as _difflib
from typing import Any

import mindspore as _ms
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
from bridge.nn.state_dict import load_state_dict as load_state_dict
from bridge.nn.state_dict import state_dict as state_dict
from bridge.torch import nn as _torch_nn
from bridge.torch.nn import functional as functional

_UNAVAILABLE = {
    "DataParallel": "MindSpore trains on many devices by msrun and mindspore.set_auto_parallel_context",
    "Container": "PyTorch has deprecated it: derive from bridge.nn.Module",
    "UninitializedParameter": "lazy layers make their Parameters at their first call",
    "UninitializedBuffer": "lazy layers make their buffers at their first call",
    "parallel": "MindSpore trains on many devices by msrun and mindspore.set_auto_parallel_context",
}


def Parameter(data: Any, requires_grad: bool = True) -> _ms.Parameter:
    """MindSpore's Parameter, whose name is that of the attribute it becomes."""
    if isinstance(data, _torch.Tensor):
        raise TypeError("Parameter takes MindSpore's tensor, as bridge.torch makes it, and was given PyTorch's")
    return _ms.Parameter(data, requires_grad=requires_grad)


def Buffer(data: Any) -> _ms.Parameter:
    """A tensor that a layer keeps and nothing trains: MindSpore's Parameter without a gradient."""
    return _ms.Parameter(data, requires_grad=False)


__all__ = [name for name in globals() if not name.startswith("_") and name not in ("annotations", "Any")]

vars(_torch_nn).update({name: globals()[name] for name in __all__})  # ported files write `torch.nn.Linear`, too


def __getattr__(name: str) -> Any:
    if name in _UNAVAILABLE:
        raise AttributeError(f"bridge.nn has no {name}: {_UNAVAILABLE[name]}")
    alike = _difflib.get_close_matches(name, __all__)
    hint = f": did you mean {' or '.join(alike)}?" if alike else ""
    raise AttributeError(f"bridge.nn has no {name}, and neither has the installed torch.nn {_torch.__version__}{hint}")
