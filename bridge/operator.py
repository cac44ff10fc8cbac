"""The callable that users see: resolves the overload, finds the primitive and runs it, in both modes."""
from __future__ import annotations

import functools
from typing import Any

import mindspore as ms
import numpy as np
from mindspore.ops.primitive import _pynative_executor

from bridge import alias, devices, direct, dtypes, eager, precision
from bridge.arguments import Bound, resolve
from bridge.graph_calls import Argument, Call, Item, graph_call
from bridge.infer import check_dtypes, infer_unknown
from bridge.primitive import ATen, graph_primitive, run
from bridge.results import arrange
from bridge.schema import Schema, label, schema

_MAX_PLANS = 4096


class Operator:
    """An ATen operator by name, or one of its overloads.

    `aten.add` resolves its overload from the arguments as PyTorch does; `aten.add.Tensor` is that overload. On
    MindSpore's GPU both run PyTorch's CUDA kernel where there is one; `aten.add.on_cpu` and `aten.add.Tensor.on_cpu`
    run its CPU kernel.

    Raises:
        TypeError: the arguments fit no overload.
        ValueError, IndexError, RuntimeError: PyTorch refuses the shapes, dtypes or values, in its own words.
    """

    # MindSpore's compiler takes such an object for this method of it, as Python takes it for __call__.
    __ms_class__ = True
    __parse_method__ = "_call_in_graph"

    def __init__(self, name: str, names: tuple[str, ...], wants_cpu: bool = False) -> None:
        self.name = name
        self.names = names
        self.wants_cpu = wants_cpu
        self._schemas: list[Schema] | None = None
        self._plans: dict[Any, Any] = {}
        if len(names) > 1 or "." not in name:
            for full in names:
                overload = Operator(full, (full,), wants_cpu) if len(names) > 1 else self
                self.__dict__[full.partition(".")[2] or "default"] = overload

    @functools.cached_property
    def on_cpu(self) -> Operator:
        """The same operator, by PyTorch's CPU kernel whatever MindSpore's device is."""
        return Operator(self.name, self.names, wants_cpu=True)

    @property
    def schemas(self) -> list[Schema]:
        """The schemas to resolve among, in order."""
        if self._schemas is None:
            self._schemas = [schema(name) for name in self.names]
        return self._schemas

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return "\n".join(op.text for op in self.schemas)

    def __repr__(self) -> str:
        return f"<{label(self.name)}>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        tensors: list[Any] = []
        try:
            if kwargs:
                key = (_key(args, tensors), tuple(kwargs), _key(tuple(kwargs.values()), tensors))
            else:
                key = _key(args, tensors)
            plan = self._plans.get(key)
        except TypeError:  # an argument that cannot be hashed: resolution says what is wrong with it
            plan = None
        if plan is None:
            return self._call_unplanned(args, kwargs, key)
        primitive, arrange = plan
        results = _run(primitive, tensors)
        return arrange(results) if arrange else results

    def _call_unplanned(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any) -> Any:
        bound = resolve(self.name, self.schemas, args, kwargs)
        device = devices.place(bound.schema, self.wants_cpu)
        if bound.schema.shim is None:
            return eager.call(bound, device)
        primitive = ATen(bound.schema.name, bound.text, device)
        arrange = _arranger(bound)
        if bound.reusable:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[key] = (primitive, arrange)
        results = _run(primitive, bound.tensors)
        return arrange(results) if arrange else results

    def _call_in_graph(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self._graph_call(args, kwargs)

    @functools.cached_property
    def _graph_call(self) -> Any:
        return graph_call(self.name, self._plan_in_graph)

    def _plan_in_graph(self, args: list[Any], kwargs: dict[str, Any], product: Any = None) -> Any:
        """The expression of a call with these arguments (bridge/graph_calls.py).

        Args:
            product: what tells mixed precision (bridge/precision.py), where that may cast.
        """
        bound = resolve(self.name, self.schemas, args, kwargs)
        op = bound.schema
        if product is None and precision.is_listed(op):
            product = Call(precision.PRODUCT, [precision.ONE, precision.ONE])
            return Call(self._graph_call, [Argument(0), Argument(1), product])
        if product is not None:
            bound.tensors = precision.cast_in_graph(op, bound.text, bound.tensors, product.dtype)
        if op.shim is None:
            raise RuntimeError(f"{label(op.name)} works in PyNative mode only: {eager.reason(op)}")
        device = devices.place(op, self.wants_cpu)
        specs = tuple((tensor.shape, dtypes.to_torch(tensor.dtype)) for tensor in bound.tensors)
        results = infer_unknown(op.name, op.kernel_text(bound.text), device, specs)
        check_dtypes(op.name, op.kernel_text(bound.text), device, specs)
        known = all(size >= 0 for shape, _ in specs for size in shape)
        part = alias.find(op.name, bound.text, device, specs) if known else None
        if part is not None:
            call = _primitive_call(part.name, part.text, device, [bound.tensors[i] for i in part.inputs])
            return call if part.result is None else Item(call, part.result)
        call = _primitive_call(op.name, bound.text, device, bound.tensors)
        if not op.nested:
            return call
        return arrange(op.name, bound.text, tuple(Item(call, i) for i in range(len(results))))


def _primitive_call(name: str, text: str, device: str, tensors: list[Any]) -> Call:
    """The call of an overload's primitive in a graph."""
    return Call(graph_primitive(ATen, name, text, device, dtypes.names(x.dtype for x in tensors)), tensors)


def _run(primitive: ATen, tensors: list[Any]) -> Any:
    """Call a primitive; while MindSpore records for a gradient, its alias if it has one."""
    if not (primitive.composite and _pynative_executor.grad_flag()):
        return run(primitive, tensors)
    if direct.has_mixed_precision():
        tensors = direct.cast(tensors, primitive.amp_name, primitive.kept)
    key = tuple([(x.shape, x.dtype) for x in tensors])
    if key not in primitive.aliases:
        if len(primitive.aliases) >= _MAX_PLANS:
            primitive.aliases.clear()
        primitive.aliases[key] = _alias(primitive, key)
    part = primitive.aliases[key]
    if part is None:
        return run(primitive, tensors)
    inner, inputs, result = part
    results = run(inner, [tensors[i] for i in inputs])
    return results if result is None else results[result]


def _alias(primitive: ATen, key: tuple[Any, ...]) -> Any:
    specs = tuple((shape, dtypes.to_torch(dtype)) for shape, dtype in key)
    device = primitive.aten_device
    part = alias.find(primitive.aten_op, primitive.aten_args, device, specs)
    if part is None:
        return None
    inner = ATen(part.name, part.text, device)
    inner.amp_name = ""  # mixed precision has seen the composite
    return inner, part.inputs, part.result


def _key(values: Any, tensors: list[Any]) -> Any:
    """What of some arguments decides the plan; the tensors among them are collected.

    1, 1.0 and True are different keys, and so are 0.0 and -0.0.
    """
    key: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is ms.Tensor or kind is ms.Parameter:
            tensors.append(value)
            key.append(ms.Tensor)
        elif kind is float:
            key.append(value.hex())
            key.append(kind)
        elif isinstance(value, (list, tuple)):
            key.append(_key(value, tensors))
        elif isinstance(value, (complex, np.generic)):
            key.append(repr(value))
            key.append(kind)
        elif isinstance(value, ms.Tensor):
            tensors.append(value)
            key.append(ms.Tensor)
        else:
            key.append(value)
            key.append(kind)
    return tuple(key)


def _arranger(bound: Bound) -> Any:
    """The function that brings a primitive's flat results into the overload's form; None if they are in it."""
    return functools.partial(arrange, bound.schema.name, bound.text) if bound.schema.nested else None
