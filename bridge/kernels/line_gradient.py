"""What differentiates a kernel by a gradient line: one primitive for each entry, in both modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mindspore import ops

from bridge.call.arguments import Bound, TensorMark, resolve
from bridge.infer.unknown import infer_unknown
from bridge.kernels.bprops import Bprop, listed, requires_gradient
from bridge.kernels.declaration import Declaration
from bridge.kernels.gradient_checks import check_gradients, is_floating, missing_gradient
from bridge.kernels.gradient_line import Entry, Line, Reference
from bridge.op import dtypes
from bridge.op.encoding import Slot, Text
from bridge.op.overload import overload
from bridge.op.schema import label
from bridge.op.table import Device
from bridge.primitive.aten import ATen
from bridge.primitive.graph_calls import Call, Computed, Item
from bridge.primitive.kernel import graph_primitive, launch

_Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Step:
    """One primitive of a bprop.

    Args:
        name, text: what it computes.
        places: its tensors, among the kernel's inputs, results and gradients of results.
        targets: the inputs whose gradients it gives; None for an absent optional one.
    """

    name: str
    text: Text
    places: tuple[int, ...]
    targets: tuple[int | None, ...]


class LineGradient(Bprop):
    """The bprop of a gradient line, for one argument text.

    Args:
        name, text, declaration: see Bprop.
        device: where the kernel runs, and so where the functions of the line do.
        line: the gradient line.
        functions: for the name of a function of the line, the full names of the operators that it may be.
    """

    def __init__(self, name: str, text: Text, device: Device, declaration: Declaration, line: Line,
                 functions: Callable[[str], Sequence[str]]) -> None:  # fmt: skip
        super().__init__(name, text, declaration)
        self.device = device
        self.line = line
        self.functions = functions
        self._results = len(declaration.outputs)
        self._has_shapes = any(r.kind == "shape" for entry in line.entries for r in entry.references)
        self._planned: dict[_Shapes, list[Step]] = {}
        self._primitives: dict[Step, ATen] = {}
        # The inputs whose gradients are gradients of results, and those that the line says something of.
        self._passed = {
            self.values[entry.variables[0]].position: entry.references[0].value
            for entry in line.entries
            if not entry.function and isinstance(self.values[entry.variables[0]], Slot)
        }
        named = [*line.constant, *(variable for entry in line.entries for variable in entry.variables)]
        self._told = {self.values[one].position for one in named if isinstance(self.values[one], Slot)}

    def gradients(self, inputs: tuple[Any, ...], out: Any, dout: Any) -> Sequence[Any]:
        cotangents = listed(dout)
        pool = (*inputs, *listed(out), *cotangents)
        wanted = {i for i, x in enumerate(inputs) if requires_gradient(x)}
        found: dict[int | None, Any] = {i: cotangents[result] for i, result in self._passed.items()}
        for step in self._steps(inputs):
            if wanted.isdisjoint(step.targets):
                continue
            primitive = self._primitives.get(step)
            if primitive is None:
                primitive = self._primitives[step] = ATen(step.name, step.text, self.device)
            found |= self._assigned(step, listed(launch(primitive, [pool[place] for place in step.places])))
        gradients = [found.get(i) for i in range(len(inputs))]
        check_gradients(self.name, self.tensor_names, gradients, inputs)
        for i in wanted - self._told:
            gradients[i] = RuntimeError(missing_gradient(self.name, self.tensor_names[i]))
        return gradients

    def _plan_in_graph(self, inputs: list[Any], out: Any, dout: Any) -> Any:
        cotangents = listed(dout)
        pool = (*inputs, *listed(out), *cotangents)
        found: dict[int | None, Any] = {i: cotangents[result] for i, result in self._passed.items()}
        for step in self._steps(inputs):
            found |= self._assigned(step, self._called(step, [pool[place] for place in step.places]))
        gradients = [found.get(i) for i in range(len(inputs))]
        check_gradients(self.name, self.tensor_names, gradients, inputs)
        return tuple(
            one if one is not None else self._without(i, x)
            for i, (one, x) in enumerate(zip(gradients, inputs, strict=True))
        )

    def _without(self, place: int, x: Any) -> Call:
        """What stands in a graph for the gradient of a tensor that the line gives none."""
        if place in self._told or not is_floating(x.dtype):
            return Call(ops.zeros_like, [x])
        return self.refusal(x, missing_gradient(self.name, self.tensor_names[place]))

    def _assigned(self, step: Step, given: list[Any]) -> dict[int | None, Any]:
        """What a step gave, by the inputs whose gradients it is."""
        if len(given) != len(step.targets):
            raise ValueError(
                f"the gradient line of {label(self.name)} takes {len(step.targets)} gradient(s) from "
                f"{label(step.name)}, which gives {len(given)}"
            )
        return dict(zip(step.targets, given, strict=True))

    def _called(self, step: Step, tensors: list[Any]) -> list[Any]:
        """The results of a step in a graph."""
        op = overload(step.name)
        specs = tuple((tuple(x.shape), dtypes.to_torch(x.dtype)) for x in tensors)
        results = infer_unknown(op.name, step.text, self.device, specs)
        types = dtypes.names(x.dtype for x in tensors)
        call = Call(graph_primitive(ATen, step.name, step.text, self.device, types), tensors)
        known = [(shape, dtypes.to_mindspore(dtype)) for shape, dtype in results]
        return (
            [Computed(call.function, tensors, *known[0])]
            if op.single
            else [_KnownItem(call, i, *one) for i, one in enumerate(known)]
        )

    def _steps(self, inputs: Sequence[Any]) -> list[Step]:
        """The steps for inputs of these shapes, if the line has shapes in it."""
        shapes = tuple(tuple(x.shape) for x in inputs) if self._has_shapes else ()
        if shapes not in self._planned:
            self._planned[shapes] = [self._step(entry, shapes) for entry in self.line.entries if entry.function]
        return self._planned[shapes]

    def _step(self, entry: Entry, shapes: _Shapes) -> Step:
        passed = [self._value(r, shapes) for r in entry.references if not r.keyword]
        named = {r.keyword: self._value(r, shapes) for r in entry.references if r.keyword}
        names = self.functions(entry.function)
        used = {r.value for r in entry.references if r.kind == "argument"}
        if overload(names[0]).takes_variables:
            passed += [_placed(self.values[variable]) for variable in entry.variables if variable not in used]
        bound: Bound = resolve(label(names[0]), [overload(name) for name in names], passed, named)
        targets = [self.values[variable] for variable in entry.variables]
        return Step(
            bound.overload.name, bound.text, tuple(tensor.place for tensor in bound.tensors),
            tuple(value.position if isinstance(value, Slot) else None for value in targets),
        )  # fmt: skip

    def _value(self, reference: Reference, shapes: _Shapes) -> Any:
        """What a reference passes."""
        if reference.kind == "argument":
            return _placed(self.values[reference.value])
        if reference.kind == "literal":
            return reference.value
        if reference.kind == "shape":
            name, dimension = reference.value
            return self._size(name, dimension, shapes)
        results = self._results if reference.kind == "grad" else 0
        return _Placed(len(self.tensor_names) + results + reference.value)

    def _size(self, name: str, dimension: int | None, shapes: _Shapes) -> Any:
        """A size of an argument, or all."""
        slot = self.values[name]
        shape = shapes[slot.position] if isinstance(slot, Slot) else ()
        if dimension is not None and dimension not in range(-len(shape), len(shape)):
            raise ValueError(
                f"the gradient line of {label(self.name)} uses {name}.shape[{dimension}], but the shape is {shape}"
            )
        sizes = shape if dimension is None else (shape[dimension],)
        if any(size < 0 for size in sizes):
            raise ValueError(
                f"the gradient line of {label(self.name)} uses a size of {name!r} that is known only when the graph "
                "runs: call it with known shapes, or pass the tensor itself to the function"
            )
        return list(sizes) if dimension is None else sizes[0]


class _KnownItem(Item, TensorMark):
    """One of several results of a step in a graph.

    Args:
        of, index: see Item.
        shape, dtype: see GraphTensor.
    """

    def __init__(self, of: Call, index: int, shape: tuple[int, ...], dtype: Any) -> None:
        super().__init__(of, index)
        self.shape = shape
        self.dtype = dtype


class _Placed(TensorMark):
    """A tensor of a bprop, by its place among inputs, results and gradients."""

    def __init__(self, place: int) -> None:
        self.place = place


def _placed(value: Any) -> Any:
    """An argument of the kernel, with its tensors by their places."""
    if isinstance(value, list):
        return [_placed(item) for item in value]
    return _Placed(value.position) if isinstance(value, Slot) else value
