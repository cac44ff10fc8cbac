"""Operators that cannot be a primitive: PyTorch runs them at once, on views of MindSpore's memory, in PyNative mode.

They are those whose result is a Python value, or has a shape that depends on the data (in that call:
bridge/infer/data_dependent.py). Where MindSpore has to own the results' memory (on a GPU, or to differentiate), a
primitive computes them again, now that their shapes are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.call.arguments import Bound
from bridge.call.torch_call import flat, renamed, torch_call
from bridge.infer import data_dependent
from bridge.op import devices, dtypes
from bridge.op.encoding import Text
from bridge.op.overload import GradientKind, Overload, no_gradient
from bridge.op.table import Device
from bridge.primitive import direct, precision
from bridge.primitive.aten import Shaped
from bridge.primitive.kernel import launch
from bridge.primitive.tensors import from_torch, torch_view


def without_kernel(op: Overload) -> str:
    """Why no call of the operator can be a kernel, in graph mode either; empty if one can."""
    if op.has_kernel or data_dependent.always(op):
        return ""
    if op.eager_because:
        return op.eager_because
    if not op.schema.results:
        return "it has no result"
    tensors = [result for result in op.schema.results if "Tensor" in result]
    return "not all of its results are tensors" if tensors else "its result is not a tensor"


def _to_mindspore(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return from_torch(value)
    if isinstance(value, torch.dtype):
        return dtypes.to_mindspore(value)
    if isinstance(value, (list, tuple)):
        return tuple(_to_mindspore(item) for item in value)
    return value


def call(bound: Bound, device: Device) -> Any:
    """Run the bound call by PyTorch's kernel for `device` ("CPU" or "GPU").

    Returns its results: tensors, Python values, or a tuple of them.
    """
    op, text = bound.overload, bound.text
    tensors = [tensor.contiguous() for tensor in _in_precision(bound)]
    _wait()
    torch_device = devices.torch_name(device)
    state = torch.get_rng_state() if op.random else None
    results = _call_pytorch(bound, tensors, torch_device)
    recorded = _mindspore.is_recording()
    if recorded and op.gradient is GradientKind.NONE:
        return _undifferentiable(_to_mindspore(results), _Refuse(op), tensors)
    if not (flat(results) and op.dispatched and (device == "GPU" or (recorded and op.differentiable))):
        return _to_mindspore(results)
    if state is not None:
        text = text.drawing_again()
        tensors.append(from_torch(state))
    return _compute_again(op.name, text, device, tensors, results)


def _in_precision(bound: Bound) -> Sequence[ms.Tensor]:
    """The tensors as mixed precision wants them; it does not ask for that where the results are Python values."""
    op = bound.overload
    if not any("Tensor" in result for result in op.schema.results):
        return bound.tensors
    return direct.cast(bound.tensors, precision.amp_name(op), precision.kept(op, bound.text))


def _wait() -> None:
    """Until MindSpore has computed what it was asked for."""
    _mindspore.wait()
    if devices.target() != "CPU":
        ms.runtime.synchronize()


def _call_pytorch(bound: Bound, tensors: list[ms.Tensor], torch_device: str) -> Any:
    with torch.no_grad():
        try:
            views = [torch_view(tensor).to(torch_device) for tensor in tensors]
            return torch_call(bound.overload, bound.text, views, torch_device)
        except Exception as error:
            raise renamed(error, bound.overload.name) from None


class _Refuse(ms.nn.Cell):
    """Gives its first argument, as a result of the others that cannot be differentiated."""

    def __init__(self, op: Overload) -> None:
        super().__init__()
        self.op = op

    def construct(self, result: ms.Tensor, *inputs: ms.Tensor) -> ms.Tensor:
        return result

    def bprop(self, *args: Any) -> None:
        raise no_gradient(self.op)


def _undifferentiable(value: Any, refuse: _Refuse, inputs: list[ms.Tensor]) -> Any:
    """The results, of which the floating ones raise an error when they are differentiated."""
    if isinstance(value, tuple):
        return tuple(_undifferentiable(item, refuse, inputs) for item in value)
    if not isinstance(value, ms.Tensor):
        return value
    dtype = dtypes.to_torch(value.dtype)
    return refuse(value, *inputs) if dtype.is_floating_point or dtype.is_complex else value


def _compute_again(name: str, text: Text, device: Device, tensors: list[ms.Tensor], results: Any) -> Any:
    """The results once more, as those of a primitive, in MindSpore's memory."""
    specs = tuple((tuple(tensor.shape), tensor.dtype) for tensor in flat(results))
    found = iter(launch(Shaped(name, text, device, len(tensors), specs), tensors))

    def replaced(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return next(found)
        return tuple(map(replaced, value)) if isinstance(value, (list, tuple)) else _to_mindspore(value)

    return replaced(results)
