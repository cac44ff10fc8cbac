"""What PyTorch chooses its kernels by, besides their arguments: what a process or `torch.autocast` has set."""

from __future__ import annotations

from bridge.op import devices
from bridge.programs.in_cpp import library


def choices() -> int:
    """What holds now for MindSpore's device, as a number."""
    return int(library().ms_ext_choices(devices.target() == "GPU"))
