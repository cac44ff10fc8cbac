"""What PyTorch chooses its kernels by, besides their arguments: what a process or `torch.autocast` has set."""

from __future__ import annotations

from typing import Any

import torch


def choices(device: str) -> Any:
    """What holds now, which can be compared.

    Args:
        device: PyTorch's name of it.
    """
    backends, kind = torch.backends, torch.device(device).type
    return (
        torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind),
        torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), backends.mkldnn.enabled,
        backends.cudnn.enabled, backends.cudnn.deterministic, backends.cuda.flash_sdp_enabled(),
        backends.cuda.mem_efficient_sdp_enabled(), backends.cuda.math_sdp_enabled(), backends.cuda.cudnn_sdp_enabled(),
        backends.cpu.get_cpu_capability(), torch.cuda.get_device_capability(device) if device != "cpu" else None,
    )  # fmt: skip
