"""Tensors of one framework as the other's: a view of the same memory, or a copy."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import mindspore as ms
import torch

from bridge.op import devices, dtypes
from bridge.op.table import SHARED


def torch_view(tensor: ms.Tensor) -> torch.Tensor:
    """A PyTorch tensor on the memory of a MindSpore tensor, on whichever device that is; the data is not copied.

    The caller keeps `tensor` alive, and has waited for MindSpore to compute it.
    """
    dtype = dtypes.to_torch(tensor.dtype)
    address = tensor.data_ptr() if tensor.size else None
    if tensor.size and not address:
        raise RuntimeError("a tensor has an initializer that has not run: call its init_data() first")
    return view_at(address, tensor.shape, dtype)


def view_at(address: int | None, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A PyTorch tensor on memory of MindSpore's; None is the address of a tensor without elements."""
    if not address:
        return torch.empty(shape, dtype=dtype)
    size = math.prod(shape) * dtype.itemsize
    device = _gpu_of(address)
    if device >= 0:
        data = torch.as_tensor(_CudaMemory(address, size), device=f"cuda:{device}")
        return data.view(dtype).view(shape)
    memory = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def float_at(address: int) -> float:
    """The float32 number in memory of MindSpore's. It waits for a GPU that has it."""
    if is_on_gpu(address):
        return view_at(address, (), torch.float32).item()
    return ctypes.c_float.from_address(address).value


def is_on_gpu(address: int) -> bool:
    """Whether this is memory of a GPU."""
    return _gpu_of(address) >= 0


def _gpu_of(address: int) -> int:
    """The GPU whose memory this is; -1 if it is the host's."""
    if devices.target() != "GPU" or not devices.has_cuda_set():
        return -1
    return int(devices.load(SHARED["GPU"]).ms_ext_device_of(ctypes.c_void_p(address)))


def wait_for_pytorch() -> None:
    """On a GPU, until what was written on PyTorch's own stream is there for MindSpore's."""
    if devices.target() == "GPU":
        torch.cuda.current_stream().synchronize()


class _CudaMemory:
    """Some bytes of CUDA memory, in the form in which PyTorch takes them from other libraries."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


def from_torch(tensor: torch.Tensor) -> ms.Tensor:
    """A MindSpore tensor with a copy of the data."""
    result = ms.Tensor(shape=tuple(tensor.shape), dtype=dtypes.to_mindspore(tensor.dtype))
    if tensor.numel():
        torch_view(result).copy_(tensor)
    return result
