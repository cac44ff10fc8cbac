"""Gradients of the user's own kernels: `gradient=` as a line like derivatives.yaml's, or as a Python function.

A line gives, for arguments, a function and what it is called with:

    "a: f_backward(grad, a, n), b: aten.mul(grad, a), c: grad, index: not_differentiable"
    "a, b: f_backward(grad, a, b, result)"

What a function may be called with: the kernel's arguments by name; `grad`, the gradient of the result, or `grads[1]`;
`result`, or `result1`; Python literals. Results that have names in the schema may be called by them.
"""
from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mindspore as ms
from mindspore import ops
from mindspore.ops._primitive_cache import _get_cache_prim
from mindspore.ops.functional import isconstant
from mindspore.ops.primitive import constexpr

from bridge.call.arguments import Bound, TensorMark, resolve
from bridge.kernels.declaration import Declaration
from bridge.op import dtypes
from bridge.op.encoding import Slot, Text
from bridge.op.schema import label, schema
from bridge.op.table import packets
from bridge.primitive.aten import ATen
from bridge.primitive.kernel import launch

Gradient = str | Callable[..., Any] | None

_ENTRY = re.compile(
    r"\s*(?P<variables>\w+(?:\s*,\s*\w+)*)\s*:(?!:)\s*"
    r"(?:(?P<constant>not_differentiable)|(?P<passed>grad(?:s\[\d+\])?)|(?P<function>[\w.:]+)\s*\((?P<arguments>[^()]*)\))"
    r"\s*(?:,|$)"
)


@dataclass(frozen=True)
class Reference:
    """What a function of a line is called with: kind is "argument", "grad", "result" or "literal"."""

    kind: str
    value: Any
    """The argument's name, the position of the result, or the literal."""
    keyword: str = ""
    """By which name it is passed; empty if by position."""


@dataclass(frozen=True)
class Entry:
    """One entry of a line: the gradients of `variables` are what `function` returns, or, if that is empty, what it
    would be called with."""

    variables: tuple[str, ...]
    function: str
    references: tuple[Reference, ...]


@dataclass(frozen=True)
class Line:
    """A parsed line."""

    entries: tuple[Entry, ...]
    constant: tuple[str, ...]
    """The arguments that are not differentiable."""


def parse(line: str, declaration: Declaration) -> Line:
    """Read a gradient line. Raises ValueError that says what is wrong with it."""
    owner = f"the gradient line of {declaration.name}"
    if "List[Tensor]" in declaration.returns:
        raise ValueError(f"{owner}: a list of results needs a Python function as its gradient")
    entries: list[Entry] = []
    constant: list[str] = []
    position = 0
    while line[position:].strip():
        match = _ENTRY.match(line, position)
        if match is None:
            raise ValueError(
                f"{owner} cannot be read at {line[position:].strip()!r}: it is made of entries such as "
                "`a: f_backward(grad, a)`, `a: grad` or `a: not_differentiable`"
            )
        position = match.end()
        names = tuple(re.split(r"\s*,\s*", match["variables"]))
        for name in names:
            argument = declaration.argument(name)
            if argument is None or argument.base != "Tensor" or argument.is_list:
                raise ValueError(f"{owner} has a gradient for {name!r}, which is not one of its Tensor arguments: "
                                 f"{declaration.text}")
            if name in constant or any(name in entry.variables for entry in entries):
                raise ValueError(f"{owner} has two gradients for {name!r}")
        if match["constant"]:
            constant += names
            continue
        passed = match["passed"] or match["arguments"]
        references = tuple(_reference(part.strip(), declaration, owner) for part in passed.split(",") if part.strip())
        if match["passed"] and len(names) > 1:
            raise ValueError(f"{owner} gives {' and '.join(names)} one gradient, {passed}; write an entry for each")
        entries.append(Entry(names, match["function"] or "", references))
    return Line(tuple(entries), tuple(constant))


def _reference(passed: str, declaration: Declaration, owner: str) -> Reference:
    keyword, _, text = (part.strip() for part in passed.rpartition("="))
    if declaration.argument(text) is not None:
        return Reference("argument", text, keyword)
    count = len(declaration.outputs)
    for kind, pattern in (("grad", r"grad(?:s\[(\d+)\])?"), ("result", r"result(\d+)?")):
        match = re.fullmatch(pattern, text)
        if match:
            place = int(match[1] or 0)
            if place >= count:
                raise ValueError(f"{owner} uses {text}, but {declaration.name} has {count} result(s)")
            return Reference(kind, place, keyword)
    for i, output in enumerate(declaration.outputs):
        if output.name == text:
            return Reference("result", i, keyword)
    try:
        return Reference("literal", ast.literal_eval(text), keyword)
    except (ValueError, SyntaxError):
        raise ValueError(
            f"{owner} uses {text!r}, which is none of: {', '.join(a.name for a in declaration.arguments)}, grad, "
            "grads[i], result, resulti, a literal"
        ) from None


def backward_schema(entry: Entry, declaration: Declaration) -> tuple[str, str, int]:
    """The schema line of an entry's function, what its results are like, and how many tensors at the end of its
    arguments are there for that alone."""
    types = _argument_types(declaration)
    parameters: list[str] = []
    like: dict[str, str] = {}
    for i, reference in enumerate(entry.references):
        if reference.keyword:
            raise ValueError(
                f"the gradient line of {declaration.name} passes {reference.keyword}= to {entry.function}, but C++ "
                "functions take their arguments by position"
            )
        if reference.kind == "argument":
            type_ = types[reference.value]
            name = f"{reference.value}_{i}" if reference.value in like else reference.value
            like.setdefault(reference.value, name)
        else:
            type_ = _literal_type(reference.value) if reference.kind == "literal" else "Tensor"
            name = f"{reference.kind}_{i}"
        parameters.append(f"{type_} {name}")
    hidden = [variable for variable in entry.variables if variable not in like]
    like |= {variable: f"like_{variable}" for variable in hidden}
    parameters += [f"Tensor like_{variable}" for variable in hidden]
    returns = "Tensor" if len(entry.variables) == 1 else f"({', '.join(['Tensor'] * len(entry.variables))})"
    line = f"{entry.function}({', '.join(parameters)}) -> {returns}"
    return line, ", ".join(like[variable] for variable in entry.variables), len(hidden)


def _argument_types(declaration: Declaration) -> dict[str, str]:
    return {a.name: a.schema_type for a in declaration.arguments}


def _literal_type(value: Any) -> str:
    found = {bool: "bool", int: "int", float: "float", str: "str"}.get(type(value))
    if found is None:
        raise ValueError(f"the literal {value!r} cannot be passed to a gradient's function")
    return found


@dataclass(frozen=True)
class Step:
    """One primitive of a bprop."""

    name: str
    text: Text
    places: tuple[int, ...]
    """Its tensors, among the kernel's inputs, results and gradients of results."""
    targets: tuple[int, ...]
    """The inputs whose gradients it gives; -1 for an absent optional one."""


def _values(text: Text, declaration: Declaration) -> dict[str, Any]:
    """The arguments of a call: tensors as Slots, dtypes and the like by name."""
    return dict(zip([a.name for a in declaration.arguments], text.values, strict=True))


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


class Formula(_Bprop):
    """The bprop of a gradient line, for one argument text.

    Args:
        name: the kernel.
        text: its arguments.
        device: where it runs, and so where the functions of the line do.
        declaration: its schema.
        line: the gradient line.
        schemas: for the name of a function of the line, the full names of the operators that it may be.
    """

    def __init__(self, name: str, text: Text, device: str, declaration: Declaration, line: Line,
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
            given = launch(primitive, [pool[place] for place in places])
            found += given if isinstance(given, (tuple, list)) else [given]
        gradients = tuple(
            found[source] if source >= 0 else ops.zeros_like(x) for x, source in zip(inputs, self.sources, strict=True)
        )
        check_gradients(self.name, _specs(gradients), _specs(inputs))
        return gradients

    def _call_in_graph(self, inputs, out, dout):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        results = out if isinstance(out, tuple) else (out,)
        cotangents = dout if isinstance(dout, tuple) else (dout,)
        pool = (*inputs, *results, *cotangents)
        types = ()
        for x in inputs:
            types = (*types, x.dtype)
        _refuse_missing_in_graph(self.name, self.sources, types)
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
        return _checked(self.name, gradients, inputs)


class PythonGradient(_Bprop):
    """The bprop that calls the user's function with the kernel's arguments, its result and the result's gradient.

    Args:
        name: the kernel.
        text: its arguments.
        declaration: its schema.
        function: `function(*arguments, out, dout)`, which returns a gradient for each Tensor argument.
    """

    def __init__(self, name: str, text: Text, declaration: Declaration, function: Callable[..., Any]) -> None:
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
        check_gradients(self.name, _specs(gradients), _specs(inputs))
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
        return _checked(self.name, gradients, inputs)


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
        _refuse_no_gradient_in_graph(self.name, types)
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


def aten_names(function: str) -> list[str]:
    """The overloads of "aten.mul" or "aten.mul.Tensor". Raises ValueError if ATen has none of that name."""
    name = function.removeprefix("aten.")
    packet = name.partition(".")[0]
    found = [full for full in packets().get(packet, []) if name in (packet, full)]
    if not found:
        raise ValueError(f"a gradient line calls {function}, but the bridge has no ATen operator of that name")
    return found


def _is_floating(dtype: Any) -> bool:
    torch_dtype = dtypes.to_torch(dtype)
    return torch_dtype.is_floating_point or torch_dtype.is_complex


def refuse_no_gradient(name: str, types: Sequence[Any]) -> None:
    """Raise RuntimeError if a result of one of these dtypes could have a gradient."""
    if any(map(_is_floating, types)):
        raise RuntimeError(f"{label(name)} has no gradient: declare one with gradient=")


def refuse_missing(name: str, sources: Sequence[int], types: Sequence[Any]) -> None:
    """Raise RuntimeError if the line says nothing of an input that could have a gradient."""
    for i, (source, dtype) in enumerate(zip(sources, types, strict=True)):
        if source == -2 and _is_floating(dtype):
            raise RuntimeError(
                f"{label(name)} has no gradient for its tensor {i}, which is {dtypes.to_torch(dtype)}: give one in "
                "gradient=, or say `not_differentiable` there"
            )


def check_gradients(name: str, gradients: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Raise ValueError unless there is a gradient for each input, of its shape and dtype.

    Both are (shape, dtype) pairs; the shape is None where it is not known.
    """
    if len(gradients) != len(inputs):
        raise ValueError(
            f"{label(name)}: its gradient gave {len(gradients)} gradient(s), but the kernel has {len(inputs)} tensor(s)"
        )
    for i, ((shape, dtype), (expected, input_dtype)) in enumerate(zip(gradients, inputs, strict=True)):
        differs = shape is not None and expected is not None and tuple(shape) != tuple(expected)
        if differs or dtype != input_dtype:
            raise ValueError(
                f"{label(name)}: the gradient of tensor {i} is {dtype} {shape}, but the tensor is {input_dtype} "
                f"{expected}"
            )


def _specs(tensors: Sequence[Any]) -> list[Any]:
    found = []
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, ms.Tensor):
            raise TypeError(f"a gradient function returned {type(tensor).__name__} for tensor {i}, not a Tensor")
        found.append((tensor.shape, str(tensor.dtype)))
    return found


_names_in_graph = constexpr(dtypes.names)
_refuse_missing_in_graph = constexpr(refuse_missing)
_refuse_no_gradient_in_graph = constexpr(refuse_no_gradient)


@constexpr
def _check_in_graph(name: str, shapes: Any, types: Any, expected_shapes: Any, expected_types: Any) -> None:
    gradients = list(zip(shapes, map(str, types), strict=True))
    check_gradients(name, gradients, list(zip(expected_shapes, map(str, expected_types), strict=True)))


def _checked(name, gradients, inputs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    """The gradients, if there is one for each input and of its shape and dtype."""
    shapes = ()
    types = ()
    for x in gradients:
        shapes = (*shapes, x.shape if isconstant(x.shape) else None)
        types = (*types, x.dtype)
    expected_shapes = ()
    expected_types = ()
    for x in inputs:
        expected_shapes = (*expected_shapes, x.shape if isconstant(x.shape) else None)
        expected_types = (*expected_types, x.dtype)
    _check_in_graph(name, shapes, types, expected_shapes, expected_types)
    return gradients
