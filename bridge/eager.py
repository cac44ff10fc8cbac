"""Operators that cannot be a primitive: PyTorch runs them at once, on views of MindSpore's memory, in PyNative mode.

They are those whose result is a Python value, or has a shape that depends on the data (in that call:
bridge/data_dependent.py). Where MindSpore has to own the
results' memory (on a GPU, or to differentiate), a primitive computes them again, now that their shapes are known.
"""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import mindspore as ms
import torch
from mindspore.ops.primitive import _pynative_executor

from bridge import data_dependent, devices, direct, dtypes, precision
from bridge.arguments import Bound
from bridge.encoding import RANDOM_MARK
from bridge.infer import flat, renamed, torch_call
from bridge.primitive import Shaped, run
from bridge.schema import SHARED, Schema, label


def without_kernel(op: Schema) -> str:
    """Why no call of the operator can be a kernel, in graph mode either; empty if one can."""
    if op.shim is not None or data_dependent.always(op):
        return ""
    if op.eager_because:
        return op.eager_because
    if not op.results:
        return "it has no result"
    tensors = [result for result in op.results if "Tensor" in result]
    return "not all of its results are tensors" if tensors else "its result is not a tensor"


def torch_view(tensor: ms.Tensor) -> torch.Tensor:
    """A PyTorch tensor on the memory of a MindSpore tensor, on whichever device that is; the data is not copied.

    The caller keeps `tensor` alive, and has waited for MindSpore to compute it.
    """
    dtype = dtypes.to_torch(tensor.dtype)
    count = tensor.size
    if count == 0:
        return torch.empty(tensor.shape, dtype=dtype)
    address = tensor.data_ptr()
    if not address:
        raise RuntimeError("a tensor has an initializer that has not run: call its init_data() first")
    size = count * dtype.itemsize
    if devices.target() == "GPU" and devices.has_cuda_set():
        device = devices.load(SHARED["GPU"]).ms_ext_device_of(ctypes.c_void_p(address))
        if device >= 0:
            data = torch.as_tensor(_CudaMemory(address, size), device=f"cuda:{device}")
            return data.view(dtype).view(tensor.shape)
    memory = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(tensor.shape)


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


def _to_mindspore(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return from_torch(value)
    if isinstance(value, torch.dtype):
        return dtypes.to_mindspore(value)
    if isinstance(value, (list, tuple)):
        return tuple(_to_mindspore(item) for item in value)
    return value


def call(bound: Bound, device: str) -> Any:
    """Run the bound call by PyTorch's kernel for `device` ("CPU" or "GPU").

    Returns its results: tensors, Python values, or a tuple of them.
    """
    op, text = bound.schema, bound.text
    tensors = [tensor.contiguous() for tensor in _in_precision(bound)]
    _wait()
    torch_device = devices.torch_name(device)
    state = torch.get_rng_state() if op.random else None
    results = _run(bound, tensors, torch_device)
    recorded = _pynative_executor.grad_flag()
    if recorded and op.gradient == "none":
        return _undifferentiable(_to_mindspore(results), _Refuse(label(op.name)), tensors)
    if not (flat(results) and op.dispatched and (device == "GPU" or (recorded and op.differentiable))):
        return _to_mindspore(results)
    if state is not None:
        text = RANDOM_MARK + text
        tensors.append(from_torch(state))
    return _compute_again(op.name, text, device, tensors, results)


def _in_precision(bound: Bound) -> Sequence[ms.Tensor]:
    """The tensors as mixed precision wants them; it does not ask for that where the results are Python values."""
    op = bound.schema
    if not any("Tensor" in result for result in op.results):
        return bound.tensors
    return direct.cast(bound.tensors, precision.amp_name(op), precision.kept(op, bound.text))


def _wait() -> None:
    """Until MindSpore has computed what it was asked for."""
    _pynative_executor.sync()
    if devices.target() != "CPU":
        ms.runtime.synchronize()


def _run(bound: Bound, tensors: list[ms.Tensor], torch_device: str) -> Any:
    with torch.no_grad():
        try:
            views = [torch_view(tensor).to(torch_device) for tensor in tensors]
            return torch_call(bound.schema, bound.text, views, torch_device)
        except Exception as error:
            raise renamed(error, bound.schema.name) from None


class _Refuse(ms.nn.Cell):
    """Gives its first argument, as a result of the others that cannot be differentiated."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def construct(self, result: ms.Tensor, *inputs: ms.Tensor) -> ms.Tensor:
        return result

    def bprop(self, *args: Any) -> None:
        raise RuntimeError(f"{self.name} has no gradient")


def _undifferentiable(value: Any, refuse: _Refuse, inputs: list[ms.Tensor]) -> Any:
    """The results, of which the floating ones raise an error when they are differentiated."""
    if isinstance(value, tuple):
        return tuple(_undifferentiable(item, refuse, inputs) for item in value)
    if not isinstance(value, ms.Tensor):
        return value
    dtype = dtypes.to_torch(value.dtype)
    return refuse(value, *inputs) if dtype.is_floating_point or dtype.is_complex else value


def _compute_again(name: str, text: str, device: str, tensors: list[ms.Tensor], results: Any) -> Any:
    """The results once more, as those of a primitive, in MindSpore's memory."""
    specs = tuple((tuple(tensor.shape), tensor.dtype) for tensor in flat(results))
    found = iter(run(Shaped(name, text, device, len(tensors), specs), tensors))

    def replaced(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return next(found)
        return tuple(map(replaced, value)) if isinstance(value, (list, tuple)) else _to_mindspore(value)

    return replaced(results)
