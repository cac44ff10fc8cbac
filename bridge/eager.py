"""Operators that cannot be a primitive: PyTorch runs them at once, on views of MindSpore's memory, in PyNative mode.

They are those whose result is a Python value, or has a shape that depends on the data.
"""
from __future__ import annotations

import ctypes
from typing import Any

import mindspore as ms
import torch
from mindspore.ops.primitive import _pynative_executor

from bridge import dtypes
from bridge.arguments import Bound
from bridge.infer import flat, renamed, torch_call
from bridge.primitive import Shaped, run
from bridge.results import arrange
from bridge.schema import Schema, label


def reason(op: Schema) -> str:
    """Why the operator needs PyNative mode."""
    if op.eager_because:
        return op.eager_because
    if all(result in ("Tensor", "List[Tensor]") for result in op.results) and op.results:
        return "the shape of its result depends on the data"
    return "its result is not a tensor"


def torch_view(tensor: ms.Tensor) -> torch.Tensor:
    """A PyTorch tensor on the memory of a MindSpore tensor of the same shape; the data is not copied.

    The caller keeps `tensor` alive, and has waited for MindSpore to compute it.
    """
    dtype = dtypes.to_torch(tensor.dtype)
    count = tensor.size
    if count == 0:
        return torch.empty(tensor.shape, dtype=dtype)
    address = tensor.data_ptr()
    if not address:
        raise RuntimeError("a tensor has an initializer that has not run: call its init_data() first")
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(tensor.shape)


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


def call(bound: Bound) -> Any:
    """Run the bound call and return its results: tensors, Python values, or a tuple of them."""
    tensors = [tensor.contiguous() for tensor in bound.tensors]
    _pynative_executor.sync()
    with torch.no_grad():
        try:
            results = torch_call(bound.schema, bound.text, [torch_view(t) for t in tensors], "cpu")
        except Exception as error:
            raise renamed(error, bound.schema.name) from None
    if not _pynative_executor.grad_flag():
        return _to_mindspore(results)
    if bound.schema.gradient == "none":
        return _undifferentiable(_to_mindspore(results), _Refuse(label(bound.schema.name)), tensors)
    return _differentiable(bound, tensors, results)


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


def _differentiable(bound: Bound, tensors: list[ms.Tensor], results: Any) -> Any:
    """The results once more, as those of a primitive, which MindSpore differentiates; their shapes are known now."""
    if not all(kind in ("Tensor", "List[Tensor]") for kind in bound.schema.results):
        return _to_mindspore(results)
    specs = tuple((tuple(tensor.shape), tensor.dtype) for tensor in flat(results))
    found = run(Shaped(bound.schema.name, bound.text, len(tensors), specs), tensors)
    if bound.schema.results == ["Tensor"]:
        return found[0]
    return arrange(bound.schema.name, bound.text, found) if bound.schema.nested else found
