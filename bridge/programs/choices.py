"""What PyTorch chooses kernels by, besides their arguments: what a process or `torch.autocast` has set.

And what a graph refuses: to look for the cause of nan (`torch.autograd.detect_anomaly`), hooks of all modules, and
modes that see the calls of PyTorch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.nn.modules import module as modules
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from bridge.programs.in_cpp import library


class Choices(NamedTuple):
    """What holds now.

    Args:
        settings: the settings of PyTorch's, as a number.
        device: the one that PyTorch makes tensors on; empty if none is set.
        has_hooks: whether there are hooks of all modules.
        modes: the names of the modes that see what PyTorch calls.
    """

    settings: int
    device: str = ""
    has_hooks: bool = False
    modes: tuple[str, ...] = ()


def choices(on_gpu: bool) -> Choices:
    """What holds now for the GPU or the CPU."""
    settings = int(library().ms_ext_choices(on_gpu))
    has_hooks = bool(modules._has_any_global_hook())
    if not torch._C._len_torch_function_stack() and not torch._C._len_torch_dispatch_stack():  # type: ignore[attr-defined]
        return Choices(settings, has_hooks=has_hooks)
    around: list[Any] = [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]
    devices = [str(mode.device) for mode in around if isinstance(mode, DeviceContext)]
    others = tuple(type(mode).__qualname__ for mode in around if not isinstance(mode, DeviceContext))
    return Choices(settings, devices[-1] if devices else "", has_hooks, others)
