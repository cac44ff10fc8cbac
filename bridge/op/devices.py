"""Where an operator runs: PyTorch's CUDA kernel on MindSpore's GPU, or its CPU kernel on any device of MindSpore's."""

from __future__ import annotations

import ctypes
import functools
import pathlib
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.op.overload import Overload
from bridge.op.schema import label
from bridge.op.table import SHARED, SHIMS, Device

LIBRARIES = pathlib.Path(__file__).parent.parent / "lib"


@functools.cache
def load(name: str) -> ctypes.CDLL:
    """Load one of the libraries for good: MindSpore's kernels close theirs when they go."""
    return ctypes.CDLL(str(LIBRARIES / name))


@functools.cache
def has_cuda_set() -> bool:
    """Whether the bridge was built with the CUDA operators; makes them ready."""
    if not (LIBRARIES / SHIMS["GPU"]).exists():
        return False
    if not torch.cuda.is_available():
        raise RuntimeError(
            "bridge was built for CUDA, but PyTorch sees no GPU here: check the driver and CUDA_VISIBLE_DEVICES"
        )
    torch.cuda.init()  # PyTorch puts off seeding its CUDA generators until this
    for library in (SHARED["GPU"], SHIMS["GPU"]):
        load(library)
    return True


def target() -> str:
    """MindSpore's device: "CPU", "GPU" or "Ascend"."""
    return _mindspore.device_target()


def gpu() -> int:
    """The number of the GPU that MindSpore's tensors are on; -1 if they are on none, or the bridge has no CUDA
    operators."""
    return int(ms.get_context("device_id")) if target() == "GPU" and has_cuda_set() else -1


def own_kernels() -> Device:
    """MindSpore's device, which the bridge has to have kernels for.

    Raises:
        RuntimeError: it has none.
    """
    device = target()
    if device in SHIMS:
        return device
    raise RuntimeError(f"the bridge has kernels for a CPU and a GPU, and not for MindSpore's device, {device}")


def torch_name(device: str) -> str:
    """PyTorch's name of MindSpore's device, "CPU" or "GPU", as in "cuda:0"."""
    return f"cuda:{ms.get_context('device_id')}" if device == "GPU" else "cpu"


def of_torch(device: Any) -> torch.device:
    """The device that PyTorch's or MindSpore's name stands for: "cuda:0" or "GPU:0", as `device` of a tensor has it."""
    is_mindspores = isinstance(device, str) and device.isupper()
    return torch.device(device.lower().replace("gpu", "cuda") if is_mindspores else device)


def place(op: Overload, on_cpu: bool = False) -> Device:
    """The device whose kernel a call of the overload runs: "GPU" or "CPU".

    Raises:
        RuntimeError: the overload has no kernel for it.
    """
    # A draw whose shape depends on data is differentiated by the state that its generator had on the host.
    on_host = on_cpu or (op.random and not op.has_kernel and any("Tensor" in result for result in op.schema.results))
    on_gpu = target() == "GPU" and not on_host
    if on_gpu and "GPU" in op.devices and has_cuda_set():
        return "GPU"
    if "CPU" not in op.devices and op.dispatched:  # of a kernel of the user's, its library says what is missing
        asked = "and its CPU kernel was asked for" if on_cpu else f"and MindSpore's device is {target()}"
        raise RuntimeError(f"{label(op.name)}: it has a CUDA kernel alone, {asked}")
    return "CPU"
