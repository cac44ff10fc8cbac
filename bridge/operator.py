"""The callable that users see: resolves the overload, finds the primitive and runs it, in both modes."""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore.ops._primitive_cache import _get_cache_prim
from mindspore.ops.functional import isconstant
from mindspore.ops.primitive import _pynative_executor, constexpr

from bridge import alias, devices, direct, dtypes, eager
from bridge.arguments import Bound, TensorMark, resolve
from bridge.precision import ONE, PRODUCT, refuse_auto
from bridge.primitive import ATen, run
from bridge.results import arrange, places
from bridge.schema import Schema, label, schema

_MAX_PLANS = 4096

# In graph mode, stands for a tensor among the constants that overload resolution looks at.
_TENSOR = "\0tensor"
# And for a number that is known only when the graph runs.
_VARIABLE = "\0variable"


class Operator:
    """An ATen operator by name, or one of its overloads.

    `aten.add` resolves its overload from the arguments as PyTorch does; `aten.add.Tensor` is that overload. On
    MindSpore's GPU both run PyTorch's CUDA kernel where there is one; `aten.add.on_cpu` and `aten.add.Tensor.on_cpu`
    run its CPU kernel.

    Raises:
        TypeError: the arguments fit no overload.
        ValueError, IndexError, RuntimeError: PyTorch refuses the shapes, dtypes or values, in its own words.
    """

    def __init__(self, name: str, names: tuple[str, ...], wants_cpu: bool = False) -> None:
        self.name = name
        self.names = names
        self.wants_cpu = wants_cpu
        self._schemas: list[Schema] | None = None
        self._plans: dict[Any, Any] = {}
        # Python calls an object through its class; MindSpore's compiler asks the object itself for its __call__.
        self.__dict__["__call__"] = self._call_in_graph
        self.__dict__["__ms_class__"] = True  # what ms.jit_class sets
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
        names = ()
        values = args
        for name, value in kwargs.items():
            names = (*names, name)
            values = (*values, value)
        tensors = ()
        types = ()
        marks = ()
        for value in values:
            if isinstance(value, ms.Tensor):
                tensors = (*tensors, value)
                types = (*types, value.dtype)
                marks = (*marks, _TENSOR)
            elif isinstance(value, (list, tuple)):
                items = ()
                for item in value:
                    if isinstance(item, ms.Tensor):
                        tensors = (*tensors, item)
                        types = (*types, item.dtype)
                        items = (*items, _TENSOR)
                    else:
                        items = (*items, item if isconstant(item) else _VARIABLE)
                marks = (*marks, items)
            else:
                marks = (*marks, value if isconstant(value) else _VARIABLE)
        bound = _bind_in_graph(self.name, self.names, self.wants_cpu, marks, names, types)
        refuse_auto(bound[0], PRODUCT(ONE, ONE).dtype, types)
        shapes = ()
        for tensor in tensors:
            shapes = (*shapes, tensor.shape if isconstant(tensor.shape) else None)
        part = _alias_in_graph(bound[0], bound[1], bound[2], types, shapes)
        if len(part) > 0:
            inputs = ()
            for i in part[3]:
                inputs = (*inputs, tensors[i])
            results = _get_cache_prim(ATen)(part[0], part[1], bound[2], part[2])(*inputs)
            return results if part[4] is None else results[part[4]]
        results = _get_cache_prim(ATen)(bound[0], bound[1], bound[2], bound[3])(*tensors)
        if not bound[4]:
            return results
        arranged = ()
        for place in _places_in_graph(bound[0], bound[1], len(results)):
            if place is None:
                arranged = (*arranged, None)
            elif isinstance(place, int):
                arranged = (*arranged, results[place])
            else:
                arranged = (*arranged, results[place[0] : place[1]])
        return arranged[0] if len(arranged) == 1 else arranged


def _run(primitive: ATen, tensors: Sequence[Any]) -> Any:
    """Call a primitive; while MindSpore records for a gradient, its alias if it has one."""
    if not (primitive.composite and _pynative_executor.grad_flag()):
        return run(primitive, tensors)
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


def _unmarked(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_unmarked(item) for item in value]
    if isinstance(value, str) and value == _VARIABLE:
        raise TypeError(
            "in graph mode, arguments that are not tensors have to be constants: this one is known only when the graph "
            "runs; pass it as a tensor if the operator has an overload for that"
        )
    return TensorMark() if isinstance(value, str) and value == _TENSOR else value


@constexpr
def _bind_in_graph(
    name: str,
    names: tuple[str, ...],
    wants_cpu: bool,
    marks: tuple[Any, ...],
    keywords: tuple[str, ...],
    types: tuple[Any, ...],
) -> Any:
    """While MindSpore compiles: overload, argument text, device, the tensors' dtypes, whether the results need
    arranging."""
    values = [_unmarked(mark) for mark in marks]
    split = len(values) - len(keywords)
    kwargs = dict(zip(keywords, values[split:], strict=True))
    bound = resolve(name, [schema(n) for n in names], values[:split], kwargs)
    if bound.schema.shim is None:
        raise RuntimeError(f"{label(bound.schema.name)} works in PyNative mode only: {eager.reason(bound.schema)}")
    input_dtypes = dtypes.names(types)
    device = devices.place(bound.schema, wants_cpu)
    return bound.schema.name, bound.text, device, input_dtypes, bound.schema.nested


@constexpr
def _alias_in_graph(name: str, text: str, device: str, types: tuple[Any, ...], shapes: tuple[Any, ...]) -> Any:
    """While MindSpore compiles: name, text, the inputs' dtypes, which inputs and which result of the overload's alias;
    nothing if it has none or a shape is unknown."""
    if any(shape is None for shape in shapes):
        return ()
    specs = tuple((shape, dtypes.to_torch(dtype)) for shape, dtype in zip(shapes, types, strict=True))
    part = alias.find(name, text, device, specs)
    if part is None:
        return ()
    return part.name, part.text, dtypes.names(types[i] for i in part.inputs), part.inputs, part.result


_places_in_graph = constexpr(places)
