"""What differentiates the user's own kernels: a Python function of theirs, or an error. A line: line_gradient.py."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import torch
from mindspore import ops

from bridge import _mindspore
from bridge.kernels.declaration import Declaration
from bridge.kernels.gradient_checks import check_gradients, is_floating, no_gradient, tensor_names
from bridge.op import dtypes
from bridge.op.encoding import Slot, Text, text_of
from bridge.op.overload import GradientKind, Overload, declare, is_declared
from bridge.op.schema import parsed
from bridge.op.table import SHARED, Device
from bridge.primitive.aten import ATen
from bridge.primitive.differentiate import listed
from bridge.primitive.graph_calls import Call, PlannedBprop, graph_call
from bridge.primitive.kernel import graph_primitive

# What `gradient=` may be: a line, or a function of the arguments, the results and their gradients.
GradientDeclaration = str | Callable[..., Any] | None


class Bprop(PlannedBprop):
    """What differentiates a kernel, in both modes.

    Args:
        name: the kernel.
        text: its arguments.
        declaration: its schema.
    """

    uses_results = True

    def __init__(self, name: str, text: Text, declaration: Declaration) -> None:
        self.name = name
        given = [a.name for a in declaration.arguments if a.base not in ("Generator", "Device")]
        self.values = dict(zip(given, text.values, strict=True))
        self.tensor_names = tensor_names(self.values)

    def __call__(self, inputs: tuple[Any, ...], out: Any, dout: Any) -> tuple[Any, ...]:
        found = self.gradients(inputs, out, dout)
        for one in found:
            if isinstance(one, Exception):
                raise one
        return tuple(ops.zeros_like(x) if one is None else one for x, one in zip(inputs, found, strict=True))

    def gradients(self, inputs: tuple[Any, ...], out: Any, dout: Any) -> Sequence[Any]:
        """The same with None for zeros, and an error for a gradient that nobody declared, which the short way raises if
        it is asked for; see bridge.primitive.kernel.Kernel.differentiate_by."""
        raise NotImplementedError

    def refusal(self, tensor: Any, why: str) -> Call:
        """The expression of a gradient that nobody declared: it raises an error if the graph needs it."""
        name = f"the gradient of {self.name}"
        if not is_declared(name):
            declare(_Refusal(name))
        primitive = graph_primitive(ATen, name, text_of([Slot(0), why]), "CPU", dtypes.names([tensor.dtype]))
        return Call(primitive, [tensor])


class _Refusal(Overload):
    """Gives no tensor like the one that it takes, but an error, when it runs (ms_ext/refusal.cpp)."""

    dispatched = False
    has_kernel = True

    def __init__(self, name: str) -> None:
        schema = parsed(name, torch._C.parse_schema("refuse(Tensor x, str why) -> Tensor"))
        super().__init__(schema, lambda x, why: torch.empty_like(x), ["CPU"], GradientKind.NONE)

    def function(self, device: Device) -> str:
        return f"{SHARED[device]}:aten_refuse"


def requires_gradient(x: Any) -> bool:
    """Whether a tensor of PyNative mode could have a gradient, and somebody asks for it."""
    return is_floating(x.dtype) and _mindspore.requires_gradient(x)


class PythonGradient(Bprop):
    """The bprop that calls the user's function with the kernel's arguments, its result and the result's gradient.

    Args:
        name, text, declaration: see Bprop.
        function: `function(*arguments, out, dout)`, which returns a gradient, or None for zeros, for each Tensor
            argument.
    """

    def __init__(self, name: str, text: Text, declaration: Declaration, function: Callable[..., Any]) -> None:
        super().__init__(name, text, declaration)
        self.function = function
        self._bases = [argument.base for argument in declaration.arguments]

    def gradients(self, inputs: tuple[Any, ...], out: Any, dout: Any) -> Sequence[Any]:
        given = listed(self.function(*self._arguments(inputs), out, dout))
        check_gradients(self.name, self.tensor_names, given, inputs)
        return given

    def _call_in_graph(self, inputs, out, dout):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self._graph_checks(self._graph_call(inputs, out, dout), inputs)

    @functools.cached_property
    def _graph_checks(self) -> Any:
        return graph_call(f"gradient of {self.name}", self._plan_checks)

    def _plan_in_graph(self, inputs: list[Any], out: Any, dout: Any) -> Any:
        _check_readable(self.name, self.function)
        out, dout = (tuple(value) if isinstance(value, list) else value for value in (out, dout))
        return Call(self.function, [*self._arguments(inputs), out, dout])

    def _plan_checks(self, given: Any, inputs: list[Any]) -> Any:
        gradients = listed(given)
        check_gradients(self.name, self.tensor_names, gradients, inputs)
        pairs = zip(gradients, inputs, strict=True)
        return tuple(Call(ops.zeros_like, [x]) if one is None else one for one, x in pairs)

    def _arguments(self, inputs: Sequence[Any]) -> list[Any]:
        """What the kernel was called with."""

        def argument(base: str, value: Any) -> Any:
            if isinstance(value, Slot):
                return inputs[value.position]
            if isinstance(value, list):
                return tuple(argument(base, item) for item in value)
            return dtypes.MINDSPORE_DTYPES[value] if base == "ScalarType" and value is not None else value

        return [argument(base, value) for base, value in zip(self._bases, self.values.values(), strict=True)]


def _check_readable(name: str, function: Callable[..., Any]) -> None:
    """Raise ValueError for a lambda whose source MindSpore's compiler cannot read: it takes the whole lines."""
    if getattr(function, "__name__", "") != "<lambda>":
        return
    try:
        (statement,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        readable = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda)
    except (OSError, SyntaxError, ValueError):
        readable = False
    if not readable:
        raise ValueError(
            f"gradient= of {name} is a lambda in the midst of a line, which MindSpore's compiler cannot read: give the "
            "function a def of its own"
        )


class NoGradient(Bprop):
    """The bprop of a kernel without a gradient: zeros if no result could have one, else an error."""

    def gradients(self, inputs: tuple[Any, ...], out: Any, dout: Any) -> Sequence[Any]:
        missing = self._is_missing(out)
        return [RuntimeError(no_gradient(self.name)) if missing and requires_gradient(x) else None for x in inputs]

    def _plan_in_graph(self, inputs: list[Any], out: Any, dout: Any) -> Any:
        missing = self._is_missing(out)
        return tuple(
            self.refusal(x, no_gradient(self.name)) if missing and is_floating(x.dtype) else Call(ops.zeros_like, [x])
            for x in inputs
        )

    def _is_missing(self, out: Any) -> bool:
        return any(is_floating(x.dtype) for x in listed(out))
