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
from bridge.encoding import RANDOM_MARK
from bridge.infer import flat, renamed, torch_call
from bridge.primitive import Shaped, run
from bridge.schema import Schema


def reason(op: Schema) -> str:
    """Why the operator needs PyNative mode."""
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
    op, text = bound.schema, bound.text
    state = torch.get_rng_state() if op.random else None
    results = _run(bound, tensors)
    if not (op.differentiable and flat(results) and _pynative_executor.grad_flag()):
        return _to_mindspore(results)
    if state is not None:
        text += RANDOM_MARK
        tensors.append(from_torch(state))
    return _differentiable(op.name, text, tensors, results)


def _run(bound: Bound, tensors: list[ms.Tensor]) -> Any:
    with torch.no_grad():
        try:
            return torch_call(bound.schema, bound.text, [torch_view(t) for t in tensors], "cpu")
        except Exception as error:
            raise renamed(error, bound.schema.name) from None


def _differentiable(name: str, text: str, tensors: list[ms.Tensor], results: Any) -> Any:
    """The results once more, as those of a primitive, which MindSpore differentiates; their shapes are known now."""
    specs = tuple((tuple(tensor.shape), tensor.dtype) for tensor in flat(results))
    found = iter(run(Shaped(name, text, len(tensors), specs), tensors))

    def replaced(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return next(found)
        return tuple(map(replaced, value)) if isinstance(value, (list, tuple)) else _to_mindspore(value)

    return replaced(results)
