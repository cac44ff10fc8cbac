"""What stands in a graph for a bound call."""

from __future__ import annotations

from typing import Any

from bridge.call.arguments import Bound
from bridge.call.results import arrange
from bridge.infer import data_dependent
from bridge.infer.on_data import infer_on_data
from bridge.infer.unknown import check_dtypes, infer_unknown
from bridge.op import devices, dtypes
from bridge.op.encoding import Text
from bridge.op.table import Device
from bridge.primitive import composite
from bridge.primitive.aten import ATen, Unsized
from bridge.primitive.graph_calls import Call, Item
from bridge.primitive.kernel import graph_primitive


def expression(bound: Bound, wants_cpu: bool) -> Any:
    """The call of its primitive, or of the one call that it comes to if it is a composite, with the results
    arranged."""
    op, text = bound.overload, bound.text
    specs = tuple((tensor.shape, dtypes.to_torch(tensor.dtype)) for tensor in bound.tensors)
    if data_dependent.reason(op, text, specs):
        device = devices.place(op, on_cpu=True)
        call = _primitive_call(Unsized, op.name, text, device, bound.tensors)
        count = len(infer_unknown(op.name, text, device, specs, infer_on_data))
        return arrange(op.name, text, tuple(Item(call, i) for i in range(count)))
    device = devices.place(op, wants_cpu)
    results = infer_unknown(op.name, text, device, specs)
    check_dtypes(op.name, text, device, specs)
    known = all(size >= 0 for shape, _ in specs for size in shape)
    part = composite.replacement(op.name, text, device, specs) if known else None
    if part is not None:
        call = _primitive_call(ATen, part.name, part.text, device, [bound.tensors[i] for i in part.inputs])
        return call if part.result is None else Item(call, part.result)
    call = _primitive_call(ATen, op.name, text, device, bound.tensors)
    return arrange(op.name, text, tuple(Item(call, i) for i in range(len(results)))) if op.nested else call


def _primitive_call(kind: Any, name: str, text: Text, device: Device, tensors: list[Any]) -> Call:
    """The call of an overload's primitive in a graph."""
    return Call(graph_primitive(kind, name, text, device, dtypes.names(x.dtype for x in tensors)), tensors)
