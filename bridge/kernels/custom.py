"""Kernels from sources as operators of the bridge: what runs, what infers, what differentiates."""
from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bridge.call.arguments import TensorMark, resolve
from bridge.call.torch_call import renamed
from bridge.infer.meta import infer
from bridge.kernels import formula, library, native, shims
from bridge.kernels.declaration import Declaration, Initial, Results, inference, parse
from bridge.kernels.errors import KernelError
from bridge.kernels.formula import Formula, Gradient, Line, NoGradient, PythonGradient
from bridge.kernels.shims import Function
from bridge.kernels.sources import Library, Sources, flag_list, paths, shared_library
from bridge.op import devices
from bridge.op.encoding import Text
from bridge.op.schema import GradientKind, Schema, declare, schema, unused_name
from bridge.operator import Operator


class Custom(Schema):
    """A kernel from sources.

    Args:
        name: its full name.
        declaration: its schema.
        library: what it is compiled into.
        function: it, there.
        results: see bridge.kernels.extension.
        gradient: a parsed line, a Python function, or None.
        relatives: the kernels that the line calls, by the names that it has for them.
    """

    def __init__(self, name: str, declaration: Declaration, library: Library, function: Function, results: Results,
                 gradient: Line | Any, relatives: dict[str, Custom]) -> None:  # fmt: skip
        meta = inference(declaration, results)
        super().__init__(
            name,
            declaration.text,
            declaration.arguments,
            declaration.result_types,
            meta or self._run_on_torch,
            declaration.name if meta else None,
            GradientKind.NONE if gradient is None else GradientKind.FORMULA,
            devices=library.devices,
            eager_because="" if meta else "it has no results=, so its shapes follow from its data",
            dispatched=False,
        )
        self.declaration = declaration
        self.library = library
        self._function = function
        self._gradient = gradient
        self.relatives = relatives

    def function(self, device: str) -> str:
        return f"{self.library.path(device)}:{shims.symbol(self._function)}"

    def attributes(self, text: Text) -> dict[str, Any]:
        if self.library.form != "aot":
            return {}
        pairs = zip(self.declaration.arguments, text.values, strict=True)
        found = {a.name: value for a, value in pairs if a.base != "Tensor" and value is not None}
        for name, value in found.items():
            if isinstance(value, complex):
                raise TypeError(f"{self.name}: '{name}' is complex, which MindSpore's attributes of a kernel cannot be")
        return found

    @property
    def reads_attributes(self) -> bool:
        return self.library.form == "aot"

    @property
    def takes_variables(self) -> bool:
        return True  # `backward_schema` declares the functions that a line calls

    def bprop(self, text: Text, device: str) -> Any:
        if self._gradient is None:
            return NoGradient(self.name)
        if isinstance(self._gradient, Line):
            return Formula(self.name, text, device, self.declaration, self._gradient, self._schemas)
        return PythonGradient(self.name, text, self.declaration, self._gradient)

    def _schemas(self, function: str) -> list[str]:
        relative = self.relatives.get(function)
        return [relative.name] if relative else formula.aten_names(function)

    def on_torch(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel on PyTorch's tensors: without MindSpore, and without a gradient."""
        if self.library.form == "aot":
            raise TypeError(f"{self.name} is an AOT kernel, which runs in MindSpore only")
        try:
            return self._run_on_torch(*args, **kwargs)
        except RuntimeError as error:
            raise error if isinstance(error, KernelError) else renamed(error, self.name) from None

    def _run_on_torch(self, *args: Any, **kwargs: Any) -> Any:
        bound = resolve(self.packet, [self], [_marked(a) for a in args], {k: _marked(v) for k, v in kwargs.items()})
        tensors = [mark.tensor for mark in bound.tensors]
        on = tensors[0].device if tensors else torch.device("cpu")
        device = "GPU" if on.type == "cuda" else "CPU"
        outputs: list[torch.Tensor] = []
        if any(output.kind != "returned" for output in self.declaration.outputs):
            specs = infer(self.name, bound.text, device, tuple((tuple(t.shape), t.dtype) for t in tensors))
            outputs = [torch.empty(shape, dtype=dtype, device=on) for shape, dtype in specs]
        entry = library.load(self.library.path(device), self.library.name)[f"{shims.symbol(self._function)}Run"]
        found = native.run(entry, bound.text, tensors, outputs)
        return found[0] if self.results == ["Tensor"] else tuple(found)


class _TorchMark(TensorMark):
    """A tensor of PyTorch's where arguments are bound."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _marked(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_marked(item) for item in value]
    return _TorchMark(value) if isinstance(value, torch.Tensor) else value


class KernelOperator(Operator):
    """A kernel from sources, as a MindSpore operator for both modes."""

    def __init__(self, op: Custom) -> None:
        super().__init__(op.name, (op.name,))
        self._op = op

    def __reduce__(self) -> Any:
        return _declared_here, (self.name,)

    @property
    def gradient_kernels(self) -> dict[str, KernelOperator]:
        """The functions of the sources that the gradient line calls, as operators of their own."""
        return {name: KernelOperator(op) for name, op in self._op.relatives.items()}

    def build(self) -> pathlib.Path:
        """Compile for MindSpore's device now, rather than at the first call; returns the library."""
        return self._op.library.path(devices.place(self._op))

    def on_torch(self, *args: Any, **kwargs: Any) -> Any:
        """Run the same kernel on PyTorch's tensors, without MindSpore and without a gradient: to compare with.

        Raises TypeError for an AOT kernel.
        """
        return self._op.on_torch(*args, **kwargs)

    def write_shim(self, folder: str | os.PathLike[str], device: str = "CPU") -> pathlib.Path:
        """Write the generated C++ into a folder, as a start for a shim by hand; returns the file.

        Args:
            folder: where to; it is made if it is not there.
            device: "CPU" or "CUDA".
        """
        recipe = self._op.library.recipe(device)
        path = pathlib.Path(folder) / f"{self._op.library.name}_shim{recipe.shim_suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(recipe.shim)
        return path


def _declared_here(name: str) -> KernelOperator:
    """The operator of that name, where a pickle asks for it."""
    op = schema(name)
    assert isinstance(op, Custom)
    return KernelOperator(op)


def _functions(
    declaration: Declaration, line: Line | None
) -> tuple[list[Function], dict[str, tuple[Function, str]]]:
    """The functions that need shims; for those that a gradient line calls, also what their results are like."""
    backward: dict[str, tuple[Function, str]] = {}
    for entry in line.entries if line else ():
        if entry.function.startswith("aten."):
            formula.aten_names(entry.function)
        if not entry.function or entry.function.startswith("aten."):
            continue
        text, like, hidden = formula.backward_schema(entry, declaration)
        known = backward.setdefault(entry.function, (Function(parse(text), hidden), like))
        if known[0].declaration.text != text:
            raise ValueError(
                f"the gradient line of {declaration.name} calls {entry.function} in two ways: "
                f"{known[0].declaration.text} and {text}"
            )
    return [Function(declaration), *(function for function, _ in backward.values())], backward


def library_of(
    form: str, variants: dict[str, tuple[pathlib.Path, ...]], lines: Mapping[str, str | None], initial: Initial,
    flags: tuple[str, ...],
) -> Library:  # fmt: skip
    """One library of several kernels: schema line -> gradient line."""
    found = Library(form, variants, flags)
    for schema_line, gradient_line in lines.items():
        declaration = parse(schema_line, initial)
        found.add(_functions(declaration, formula.parse(gradient_line, declaration) if gradient_line else None)[0])
    return found


def make(form: str, sources: Sources, cuda: Sources, line: str, results: Results, gradient: Gradient,
         initial: Initial, flags: Sequence[str]) -> KernelOperator:  # fmt: skip
    """What `bridge.kernels.aot` and `extension` do; see there."""
    if gradient is not None and not isinstance(gradient, str) and not callable(gradient):
        raise TypeError(f"gradient= is a line or a Python function, not {type(gradient).__name__}")
    variants = {"CPU": paths(sources), "CUDA": paths(cuda)}
    if not any(variants.values()):
        raise ValueError("a kernel needs sources, or cuda sources, or both")
    declaration = parse(line, initial)
    _check_form(form, declaration, results, gradient, initial)
    inference(declaration, results)  # raises if they do not fit, before the kernel is added to a library
    parsed = formula.parse(gradient, declaration) if isinstance(gradient, str) else None
    functions, backward = _functions(declaration, parsed)
    owner = shared_library(form, variants, flag_list(flags), functions)
    relatives: dict[str, Custom] = {}
    for called, (function, like) in backward.items():
        derived = function.declaration
        relatives[called] = Custom(unused_name(f"custom::{derived.name}"), derived, owner, function, like, None, {})
        declare(relatives[called])
    op = Custom(unused_name(f"custom::{declaration.name}"), declaration, owner, functions[0], results,
                parsed if parsed is not None else gradient, relatives)  # fmt: skip
    declare(op)
    return KernelOperator(op)


def _check_form(form: str, declaration: Declaration, results: Results, gradient: Gradient, initial: Initial) -> None:
    """Raise ValueError for what a form cannot do."""
    name = declaration.name
    from_data = results is None and any(output.kind != "in_out" for output in declaration.outputs)
    if form == "aot":
        if from_data:
            raise ValueError(f"{name} needs results=: MindSpore allocates them before an AOT function runs")
        wrong = next((a for a in declaration.arguments if a.base == "Tensor" and (a.is_list or a.is_optional)), None)
        if wrong is not None or "List[Tensor]" in declaration.returns:
            raise ValueError(f"{name}: an AOT function has a fixed number of tensors; write each as a Tensor")
    else:
        if initial is not None and any(output.kind == "returned" for output in declaration.outputs):
            raise ValueError(f"{name} returns its results; initial= is for outputs that it is given: "
                             "write them as `*, Tensor(a!) out`")
        if from_data and any(output.kind == "out" for output in declaration.outputs):
            raise ValueError(f"{name} needs results=: the bridge allocates the outputs that it fills")
        if from_data and gradient is not None:
            raise ValueError(f"{name} needs results= to have a gradient: without it, the shapes follow from data")
