"""Composite overloads that are one call of another overload: `matmul` of matrices is `mm`, `layer_norm` is the first
result of `native_layer_norm`.

PyTorch differentiates a composite through its parts. Where there is one part, and it has a backward shim, calling it in
the composite's place spares the gradient a second forward call. Which part it is can depend on the shapes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bridge import _mindspore
from bridge.call.arguments import Binder, TensorMark
from bridge.call.torch_call import torch_call
from bridge.infer.trial import Spec
from bridge.op import dtypes
from bridge.op.encoding import Text
from bridge.op.overload import GradientKind, Overload, overload
from bridge.op.table import Device, table
from bridge.primitive import direct, kernel
from bridge.primitive.aten import ATen
from bridge.primitive.kernel import keep


@dataclass(frozen=True)
class Replacement:
    """The call that a composite comes to."""

    name: str
    text: Text
    inputs: tuple[int, ...]
    """Which of the composite's tensors are its tensors."""
    result: int | None
    """Which of its results is the composite's; None if it has one."""


class _Calls(TorchDispatchMode):
    """The calls that a composite makes, with their results."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self.saves_result = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.detach.default:  # which autograd does to a result that it saves
            self.saves_result = True
        elif func.namespace != "prim":  # which autograd asks for devices
            self.made.append((func, args, kwargs or {}, result))
        return result


@contextlib.contextmanager
def _without_data(device: Device) -> Iterator[str]:
    """PyTorch's device for tensors that hold no data, yet choose the kernels of the given device."""
    if device == "CPU":  # a meta tensor chooses what a CPU tensor does
        yield "meta"
        return
    from torch._subclasses.fake_tensor import FakeTensorMode  # takes a second to load

    with FakeTensorMode():
        yield "cuda"


@functools.lru_cache(maxsize=4096)
def replacement(name: str, text: Text, device: Device, inputs: tuple[Spec, ...]) -> Replacement | None:
    """The one call that an overload with these arguments comes to on "CPU" or "GPU", for inputs of these shapes and
    dtypes; None if it comes to several."""
    op = overload(name)
    if op.gradient is not GradientKind.COMPOSITE or op.redraws or op.schema.results != ("Tensor",):
        return None
    plain = _traced(op, text, device, inputs, False)
    # Some composites make another call when a gradient is wanted, with results that are rounded differently.
    return plain if plain is not None and plain == _traced(op, text, device, inputs, True) else None


def _traced(
    op: Overload, text: Text, device: Device, inputs: tuple[Spec, ...], with_gradient: bool
) -> Replacement | None:
    calls = _Calls()
    try:
        with _without_data(device) as torch_device:
            tensors = [torch.empty(shape, dtype=dtype, device=torch_device) for shape, dtype in inputs]
            for tensor in tensors:
                tensor.requires_grad_(with_gradient and (tensor.is_floating_point() or tensor.is_complex()))
            with torch.set_grad_enabled(with_gradient), calls:
                result = torch_call(op, text, tensors, torch_device)
    except Exception:  # what is wrong with the call is found where its results are inferred
        return None
    if len(calls.made) != 1:
        return None
    part, args, kwargs, results = calls.made[0]
    part_name = part.name().removeprefix("aten::")
    if "schema" not in table().get(part_name, {}) or "skipped" in table()[part_name]:
        return None
    part_schema = overload(part_name)
    if part_schema.backward is None or device not in part_schema.devices:
        return None
    if isinstance(results, tuple):
        if calls.saves_result:  # the formula may round otherwise when results that nobody uses have gradients of zero
            return None
        places = [i for i, one in enumerate(results) if one is result]
        return _part(part_schema, args, kwargs, tensors, places[0]) if places else None
    return _part(part_schema, args, kwargs, tensors, None) if results is result else None


def _part(
    part: Overload, args: Sequence[Any], kwargs: dict[str, Any], tensors: list[torch.Tensor], result: int | None
) -> Replacement | None:
    marks = {id(tensor): TensorMark() for tensor in tensors}

    def marked(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return marks[id(value)]
        if isinstance(value, torch.device):
            return None  # the kernel's own
        return [marked(item) for item in value] if isinstance(value, (list, tuple)) else value

    try:
        bound = Binder(part, marked(args), {key: marked(value) for key, value in kwargs.items()}).bind()
    except KeyError:  # it takes a tensor that the composite made
        return None
    order = list(marks.values())
    return Replacement(part.name, bound.text, tuple(order.index(mark) for mark in bound.tensors), result)


def launch(primitive: ATen, tensors: Sequence[Any]) -> Any:
    """Call a primitive in PyNative mode; while MindSpore records for a gradient, the one call that a composite comes
    to."""
    if not (primitive.composite and _mindspore.is_recording()):
        return kernel.launch(primitive, tensors)
    tensors = direct.cast(tensors, primitive.amp_name, primitive.kept)
    key = tuple([(x.shape, x.dtype) for x in tensors])
    if key not in primitive.replacements:
        keep(primitive.replacements, key, _replace(primitive, key))
    found = primitive.replacements[key]
    if found is None:
        return kernel.launch(primitive, tensors)
    inner, inputs, result = found
    results = kernel.launch(inner, [tensors[i] for i in inputs])
    return results if result is None else results[result]


def _replace(primitive: ATen, key: tuple[Any, ...]) -> Any:
    specs = tuple((shape, dtypes.to_torch(dtype)) for shape, dtype in key)
    device = primitive.aten_device
    found = replacement(primitive.aten_op, primitive.text, device, specs)
    if found is None:
        return None
    inner = ATen(found.name, found.text, device)
    inner.amp_name = ""  # mixed precision has seen the composite
    return inner, found.inputs, found.result
