"""What PyTorch chooses its kernels by, besides their arguments: what a process or `torch.autocast` has set. And whether
it looks for the cause of nan (`torch.autograd.detect_anomaly`), which a graph refuses."""

from __future__ import annotations

from bridge.programs.in_cpp import library


def choices(on_gpu: bool) -> int:
    """What holds now for the GPU or the CPU, as a number."""
    return int(library().ms_ext_choices(on_gpu))
