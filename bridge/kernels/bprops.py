"""What differentiates the user's own kernels: a gradient line, a Python function, or an error."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mindspore import ops
from mindspore.ops._primitive_cache import _get_cache_prim
from mindspore.ops.primitive import constexpr

from bridge import dtypes
from bridge.arguments import Bound, TensorMark, resolve
from bridge.encoding import Slot, decode
from bridge.kernels.declaration import Declaration
from bridge.kernels.gradient_checks import (
    check_gradients,
    checked_in_graph,
    refuse_missing,
    refuse_missing_in_graph,
    refuse_no_gradient,
    refuse_no_gradient_in_graph,
    specs,
)
from bridge.kernels.gradient_line import Entry, Line
from bridge.primitive import ATen, run
from bridge.schema import label, schema

# What `gradient=` may be: a line, or a function of the arguments, the results and their gradients.
GradientDeclaration = str | Callable[..., Any] | None

_names_in_graph = constexpr(dtypes.names)


@dataclass(frozen=True)
class Step:
    """One primitive of a bprop."""

    name: str
    text: str
    places: tuple[int, ...]
    """Its tensors, among the kernel's inputs, results and gradients of results."""
    targets: tuple[int, ...]
    """The inputs whose gradients it gives; -1 for an absent optional one."""


def _values(text: str, declaration: Declaration) -> dict[str, Any]:
    """The arguments of a call: tensors as Slots, dtypes and the like by name."""
    return dict(zip([a.name for a in declaration.arguments], decode(text), strict=True))


class _Bprop:
    """What differentiates a kernel, in both modes.

    MindSpore's compiler takes the instance's __call__, Python the class's, as in bridge/operator.py.
    """

    uses_results = True

    def __init__(self) -> None:
        self.__dict__["__call__"] = self._call_in_graph
        self.__dict__["__ms_class__"] = True

    def __call__(self, inputs: tuple[Any, ...], out: Any, dout: Any) -> tuple[Any, ...]:
        raise NotImplementedError

    @property
    def gradients(self) -> Any:
        """The same; see bridge.primitive.Kernel.differentiate_by."""
        return self

    def _call_in_graph(self, inputs, out, dout):  # type: ignore[no-untyped-def]
        raise NotImplementedError


class LineGradient(_Bprop):
    """The bprop of a gradient line, for one argument text.

    Args:
        name: the kernel.
        text: its arguments.
        device: where it runs, and so where the functions of the line do.
        declaration: its schema.
        line: the gradient line.
        schemas: for the name of a function of the line, the full names of the operators that it may be.
    """

    def __init__(self, name: str, text: str, device: str, declaration: Declaration, line: Line,
                 schemas: Callable[[str], Sequence[str]]) -> None:  # fmt: skip
        super().__init__()
        self.name = name
        self.device = device
        values = _values(text, declaration)
        inputs = sum(_count(value) for value in values.values())
        results = len(declaration.outputs)
        steps = [_step(entry, values, inputs, results, schemas) for entry in line.entries if entry.function]
        self.steps = tuple((s.name, s.text, s.places) for s in steps)
        self._primitives: list[ATen] = []
        # For each input: where its gradient is among the gradients of the results and what the steps give; -1 if it has
        # none, -2 if the line says nothing of it.
        sources = [-2] * inputs
        for name in line.constant:
            if isinstance(values[name], Slot):
                sources[values[name].position] = -1
        for entry in line.entries:
            slot = values[entry.variables[0]]
            if not entry.function and isinstance(slot, Slot):
                sources[slot.position] = entry.references[0].value
        for i, target in enumerate(target for step in steps for target in step.targets):
            if target >= 0:
                sources[target] = results + i
        self.sources = tuple(sources)

    def __call__(self, inputs: tuple[Any, ...], out: Any, dout: Any) -> tuple[Any, ...]:
        results = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        cotangents = tuple(dout) if isinstance(dout, (tuple, list)) else (dout,)
        pool = (*inputs, *results, *cotangents)
        refuse_missing(self.name, self.sources, tuple(x.dtype for x in inputs))
        found: list[Any] = [*cotangents]
        if not self._primitives:
            self._primitives = [ATen(name, text, self.device) for name, text, _ in self.steps]
        for primitive, (_, _, places) in zip(self._primitives, self.steps, strict=True):
            given = run(primitive, [pool[place] for place in places])
            found += given if isinstance(given, (tuple, list)) else [given]
        gradients = tuple(
            found[source] if source >= 0 else ops.zeros_like(x) for x, source in zip(inputs, self.sources, strict=True)
        )
        check_gradients(self.name, specs(gradients), specs(inputs))
        return gradients

    def _call_in_graph(self, inputs, out, dout):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        results = out if isinstance(out, tuple) else (out,)
        cotangents = dout if isinstance(dout, tuple) else (dout,)
        pool = (*inputs, *results, *cotangents)
        types = ()
        for x in inputs:
            types = (*types, x.dtype)
        refuse_missing_in_graph(self.name, self.sources, types)
        found = cotangents
        for step in self.steps:
            tensors = ()
            step_types = ()
            for place in step[2]:
                tensors = (*tensors, pool[place])
                step_types = (*step_types, pool[place].dtype)
            given = _get_cache_prim(ATen)(step[0], step[1], self.device, _names_in_graph(step_types))(*tensors)
            found = (*found, *given) if isinstance(given, tuple) else (*found, given)
        gradients = ()
        for x, source in zip(inputs, self.sources):  # noqa: B905  # the compiler's zip has no strict
            gradients = (*gradients, found[source]) if source >= 0 else (*gradients, ops.zeros_like(x))
        return checked_in_graph(self.name, gradients, inputs)


class PythonGradient(_Bprop):
    """The bprop that calls the user's function with the kernel's arguments, its result and the result's gradient.

    Args:
        name: the kernel.
        text: its arguments.
        declaration: its schema.
        function: `function(*arguments, out, dout)`, which returns a gradient for each Tensor argument.
    """

    def __init__(self, name: str, text: str, declaration: Declaration, function: Callable[..., Any]) -> None:
        super().__init__()
        self.name = name
        self.function = function
        arguments = zip(declaration.arguments, _values(text, declaration).values(), strict=True)
        self.template = tuple(_template(argument.base, value) for argument, value in arguments)

    def __call__(self, inputs: tuple[Any, ...], out: Any, dout: Any) -> tuple[Any, ...]:
        values = [
            inputs[value] if kind == "tensor" else tuple(inputs[i] for i in value) if kind == "tensors" else value
            for kind, value in self.template
        ]
        given = self.function(*values, out, dout)
        gradients = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        check_gradients(self.name, specs(gradients), specs(inputs))
        return gradients

    def _call_in_graph(self, inputs, out, dout):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        values = ()
        for item in self.template:
            if item[0] == "tensor":
                values = (*values, inputs[item[1]])
            elif item[0] == "tensors":
                tensors = ()
                for i in item[1]:
                    tensors = (*tensors, inputs[i])
                values = (*values, tensors)
            else:
                values = (*values, item[1])
        given = self.function(*values, out, dout)
        gradients = given if isinstance(given, tuple) else (given,)
        return checked_in_graph(self.name, gradients, inputs)


class NoGradient(_Bprop):
    """The bprop of a kernel without a gradient: zeros if no result could have one, else an error."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __call__(self, inputs: tuple[Any, ...], out: Any, dout: Any) -> tuple[Any, ...]:
        refuse_no_gradient(self.name, tuple(x.dtype for x in (out if isinstance(out, (tuple, list)) else (out,))))
        return tuple(ops.zeros_like(x) for x in inputs)

    def _call_in_graph(self, inputs, out, dout):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        results = out if isinstance(out, tuple) else (out,)
        types = ()
        for x in results:
            types = (*types, x.dtype)
        refuse_no_gradient_in_graph(self.name, types)
        gradients = ()
        for x in inputs:
            gradients = (*gradients, ops.zeros_like(x))
        return gradients


def _count(value: Any) -> int:
    return sum(map(_count, value)) if isinstance(value, list) else int(isinstance(value, Slot))


def _template(base: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, Slot):
        return "tensor", value.position
    if base == "Tensor" and isinstance(value, list):
        return "tensors", tuple(item.position for item in value if isinstance(item, Slot))
    if base == "ScalarType" and value is not None:
        return "value", dtypes.MINDSPORE_DTYPES[value]
    return "value", tuple(value) if isinstance(value, list) else value


class _Placed(TensorMark):
    """A tensor of a bprop, by its place among inputs, results and gradients."""

    def __init__(self, place: int) -> None:
        self.place = place


def _step(entry: Entry, values: dict[str, Any], inputs: int, results: int,
          schemas: Callable[[str], Sequence[str]]) -> Step:  # fmt: skip
    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [placed(item) for item in value]
        return _Placed(value.position) if isinstance(value, Slot) else value

    passed: list[Any] = []
    named: dict[str, Any] = {}
    for reference in entry.references:
        if reference.kind == "argument":
            value = placed(values[reference.value])
        elif reference.kind == "literal":
            value = reference.value
        else:
            value = _Placed(inputs + reference.value + (results if reference.kind == "grad" else 0))
        if reference.keyword:
            named[reference.keyword] = value
        else:
            passed.append(value)
    names = schemas(entry.function)
    used = {reference.value for reference in entry.references if reference.kind == "argument"}
    if schema(names[0]).takes_variables:
        passed += [placed(values[variable]) for variable in entry.variables if variable not in used]
    bound: Bound = resolve(label(names[0]), [schema(name) for name in names], passed, named)
    targets = tuple(values[v].position if isinstance(values[v], Slot) else -1 for v in entry.variables)
    return Step(bound.schema.name, bound.text, tuple(tensor.place for tensor in bound.tensors), targets)
