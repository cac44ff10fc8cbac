"""An operator that is registered with PyTorch, as the bridge knows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from bridge.call.arguments import CONVERTIBLE
from bridge.kernels import gradient_line
from bridge.kernels.bprops import GradientDeclaration, NoGradient, PythonGradient
from bridge.kernels.declaration import Declaration, Output
from bridge.kernels.gradient_line import Line
from bridge.kernels.inference import Results, inference
from bridge.kernels.line_gradient import LineGradient
from bridge.kernels.sources import DEVICES
from bridge.op.encoding import Text
from bridge.op.overload import GradientKind, Overload
from bridge.op.schema import Schema, parsed
from bridge.op.table import SHARED, Device
from bridge.primitive.level import Level
from bridge.primitive.level import parse as parse_level

_COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
# What is said of an operator whose meta function, or whose composite in Python, cannot tell the shapes.
_NO_SHAPES = ("data-dependent shape", "no fake impl registered", "its shapes follow from a run")


def cannot_tell_shapes(error: Exception) -> bool:
    """Whether an error of inference means that a run has to tell."""
    return any(words in str(error) for words in _NO_SHAPES)


class Registered(Overload):
    """An operator that somebody registered with PyTorch.

    Its kernel is `ms_ext/gradient.cpp` at level 0, a call through PyTorch's dispatcher. Arguments that it writes to are
    copied, and the copies are its first results.

    Args:
        name: the full name, as in "ns::name.overload".
        torch_op: torch.ops.ns.name.overload.
        results: see bridge.kernels.registered.
        gradient: a Python function or a line, which replaces its registered autograd.
        functions: what a gradient line may call: full names for the name of a function.

    Raises ValueError if arguments have types that MindSpore has not, or `results` or `gradient` do not fit.
    """

    eager_because = (
        "nothing tells the shapes of its results: give results=, or a meta function by torch.library.register_fake"
    )

    def __init__(
        self,
        name: str,
        torch_op: Any,
        results: Results,
        gradient: GradientDeclaration,
        functions: Callable[[str], Sequence[str]],
    ) -> None:
        raw = torch_op._schema
        self.torch_name = torch_op.name()
        self._overload = torch_op
        has_autograd = has_kernel(torch_op, "Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")
        # Not a composite, whatever its kernel is, if it has a gradient of the user's: PyTorch's would replace that.
        differentiated = GradientKind.COMPOSITE if has_autograd else GradientKind.NONE
        written = [a.name for a in raw.arguments if _is_written(a)]
        returned = [r for r in raw.returns if not _is_written(r)]
        schema = dataclasses.replace(
            parsed(name, raw),
            results=("Tensor",) * len(written) + tuple(str(r.type) for r in returned),
            result_names=(*written, *(r.name for r in returned)),
        )
        _check_types(schema, raw)
        outputs = [Output(one, "in_out", None) for one in written]
        outputs += [Output(r.name or f"result{i}", "returned", None) for i, r in enumerate(returned, len(written))]
        self.declaration = Declaration(
            schema.text, schema.packet, schema.arguments, (), tuple(outputs), tuple(str(r.type) for r in returned)
        )
        self._is_told = results is not None or not self.declaration.told  # all results are like what is written to
        told = inference(self.declaration, results) if self._is_told else None
        super().__init__(
            schema,
            told or _functional(torch_op),
            [device for device, key in DEVICES.items() if has_kernel(torch_op, key, *_COMPOSITES)],
            differentiated if gradient is None else GradientKind.FORMULA,
        )
        if self._is_told or gradient is not None:
            self.not_in_programs = f"results= and gradient= do not hold there: call torch.ops.{_path(torch_op)}"
        self._functions = functions
        self._gradient = gradient
        self._line: Line | None = None
        if gradient is not None and not self.has_kernel:
            raise ValueError(f"{name} needs results= or a meta function for gradient=")
        if isinstance(gradient, str):
            self._line = gradient_line.parse(gradient, self.declaration)

    @property
    def has_kernel(self) -> bool:
        """Whether something tells the shapes of the results. A meta function may be registered at any time."""
        return self._is_told or _tells_shapes(self._overload)

    def function(self, device: Device) -> str:
        return f"{SHARED[device]}:aten_gradient"

    @property
    def single(self) -> bool:
        return False

    @property
    def nested(self) -> bool:
        return True

    def kernel_text(self, text: Text) -> str:
        return Level(self.torch_name, text, 0, ()).kernel_text(text.inputs)

    def operator_text(self, kernel_text: str) -> str:
        return parse_level(kernel_text).text

    def bprop(self, text: Text, device: Device) -> Any:
        if self._line is not None:
            return LineGradient(self.name, text, device, self.declaration, self._line, self._functions)
        if callable(self._gradient):
            return PythonGradient(self.name, text, self.declaration, self._gradient)
        return NoGradient(self.name, text, self.declaration) if self.gradient is GradientKind.NONE else None


def _path(torch_op: Any) -> str:
    """As in "ns.name.overload"."""
    return str(torch_op.name().replace("::", "."))


def has_kernel(torch_op: Any, *keys: str) -> bool:
    """Whether the overload has a kernel for one of PyTorch's dispatch keys."""
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(torch_op.name(), key) for key in keys)


def _is_written(item: Any) -> bool:
    return item.alias_info is not None and item.alias_info.is_write


def _check_types(schema: Schema, raw: Any) -> None:
    for argument, item in zip(schema.arguments, raw.arguments, strict=True):
        if argument.base not in CONVERTIBLE:
            raise ValueError(
                f"{schema.name} has an argument {argument.name!r} of the type {item.type}, which a kernel cannot be "
                "given: register an operator that takes tensors, lists and numbers"
            )
        if _is_written(item) and str(item.type) != "Tensor":
            raise ValueError(
                f"{schema.name} writes to {argument.name!r}, which has to be a Tensor for that, not {item.type}"
            )


def _tells_shapes(torch_op: Any) -> bool:
    """Whether a meta function does, or the operator itself where that is safe.

    A composite in C++ is not tried: it may read memory that tensors without data do not have.
    """
    return has_kernel(torch_op, "Meta") or _is_composite_in_python(torch_op)


def _is_composite_in_python(torch_op: Any) -> bool:
    name = torch_op.name().replace("::", "/")
    return any(f"{name}/{key}" in torch.library._impls for key in _COMPOSITES)


def _functional(torch_op: Any) -> Callable[..., Any]:
    """The overload as a function that writes to copies, which are its first results."""
    raw = torch_op._schema
    written = [(i, a.name) for i, a in enumerate(raw.arguments) if _is_written(a)]
    kept = [i for i, r in enumerate(raw.returns) if not _is_written(r)]
    composite = _is_composite_in_python(torch_op) and not has_kernel(torch_op, "Meta")
    run = _on_fake_tensors(torch_op) if composite else torch_op

    def function(*args: Any, **kwargs: Any) -> Any:
        if not written:
            return run(*args, **kwargs)
        values = list(args)
        copies = []
        for place, name in written:
            holder: Any = kwargs if name in kwargs else values
            key: Any = name if name in kwargs else place
            holder[key] = holder[key].clone()
            copies.append(holder[key])
        returned = run(*values, **kwargs)
        listed = returned if isinstance(returned, tuple) else (returned,)
        return (*copies, *(listed[i] for i in kept))

    return function


def _on_fake_tensors(torch_op: Any) -> Callable[..., Any]:
    """The overload, a composite in Python, which gets fake tensors for meta tensors: an operator that it calls may have
    a kernel in C++ alone, and only fake tensors refuse to give that their memory."""

    def fake(value: Any) -> Any:
        return torch.empty(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value

    def meta(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty(tuple(value.shape), dtype=value.dtype, device="meta")

    def run(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(x, torch.Tensor) and x.is_meta for x in tree_leaves((args, kwargs))):
            return torch_op(*args, **kwargs)
        from torch._subclasses.fake_tensor import FakeTensorMode  # takes a second to import

        try:
            with FakeTensorMode():
                found = torch_op(*tree_map(fake, args), **tree_map(fake, kwargs))
        except RuntimeError as error:
            words, _, _ = str(error).partition("\n")
            raise RuntimeError(f"its shapes follow from a run: {words}") from None
        return tree_map(meta, found)

    return run
