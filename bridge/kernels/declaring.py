"""Makes operators of what users declare of their sources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bridge.kernels import gradient_line
from bridge.kernels.backward_schema import backward_schema
from bridge.kernels.bprops import GradientDeclaration
from bridge.kernels.custom import Custom
from bridge.kernels.declaration import Declaration, Initial, parse
from bridge.kernels.gradient_line import Line, aten_names
from bridge.kernels.inference import Results, inference
from bridge.kernels.kernel_operator import KernelOperator
from bridge.kernels.shims import Form, Function
from bridge.kernels.sources import Sources, kernel_library, paths
from bridge.kernels.toolchain import Flags
from bridge.op.overload import declare, unused_name
from bridge.op.table import Variant


def _functions(
    form: Form, declaration: Declaration, line: Line | None, expression: str = ""
) -> tuple[list[Function], dict[str, tuple[Function, str]]]:
    """The functions that need shims; for those that a gradient line calls, also what their results are like."""
    backward: dict[str, tuple[Function, str]] = {}
    for entry in line.entries if line else ():
        if entry.function.startswith("aten."):
            aten_names(entry.function)
        if not entry.function or entry.function.startswith("aten."):
            continue
        text, like, hidden = backward_schema(entry, declaration)
        function = Function(form, parse(text), hidden=hidden, like=tuple(like.split(", ")))
        known = backward.setdefault(entry.function, (function, like))
        if known[0].declaration.text != text:
            raise ValueError(
                f"the gradient line of {declaration.name} calls {entry.function} in two ways: "
                f"{known[0].declaration.text} and {text}"
            )
    return [Function(form, declaration, expression), *(function for function, _ in backward.values())], backward


def functions_of(form: Form, lines: Mapping[str, str | None], initial: Initial) -> list[Function]:
    """What needs shims of several kernels: schema line -> gradient line."""
    found: list[Function] = []
    for schema_line, gradient in lines.items():
        declaration = parse(schema_line, initial)
        found += _functions(form, declaration, gradient_line.parse(gradient, declaration) if gradient else None)[0]
    return list(dict.fromkeys(found))


def make(
    form: Form,
    sources: Sources,
    cuda: Sources,
    line: str,
    results: Results,
    gradient: GradientDeclaration,
    initial: Initial,
    flags: dict[Variant, Flags],
    expression: str = "",
) -> KernelOperator:
    """What `bridge.kernels.aot` and `extension` do; see there."""
    if gradient is not None and not isinstance(gradient, str) and not callable(gradient):
        raise TypeError(f"gradient= is a line or a Python function, not {type(gradient).__name__}")
    variants: dict[Variant, tuple[Path, ...]] = {"CPU": paths(sources), "CUDA": paths(cuda)}
    if not any(variants.values()):
        raise ValueError("a kernel needs sources, or cuda sources, or both")
    declaration = parse(line, initial)
    _check_form(form, declaration, results, gradient, initial)
    inference(declaration, results)  # raises if they do not fit, before the kernel is added to a library
    parsed = gradient_line.parse(gradient, declaration) if isinstance(gradient, str) else None
    functions, backward = _functions(form, declaration, parsed, expression)
    owner = kernel_library(variants, flags, functions)
    relatives: dict[str, Custom] = {}
    for called, (function, like) in backward.items():
        derived = function.declaration
        relatives[called] = Custom(unused_name(f"custom::{derived.name}"), derived, owner, function, like, None, {})
        declare(relatives[called])
    op = Custom(unused_name(f"custom::{declaration.name}"), declaration, owner, functions[0], results,
                parsed if parsed is not None else gradient, relatives)  # fmt: skip
    declare(op)
    return KernelOperator(op)


def _check_form(
    form: Form, declaration: Declaration, results: Results, gradient: GradientDeclaration, initial: Initial
) -> None:
    """Raise ValueError for what a form cannot do."""
    name = declaration.name
    from_data = results is None and bool(declaration.told)
    if form == "aot":
        if from_data:
            raise ValueError(f"{name} needs results=: MindSpore allocates them before an AOT function runs")
        wrong = next((a for a in declaration.arguments if a.base == "Tensor" and (a.is_list or a.is_optional)), None)
        if wrong is not None or "List[Tensor]" in declaration.returns:
            raise ValueError(f"{name}: an AOT function has a fixed number of tensors; write each as a Tensor")
        if any(output.number for output in declaration.outputs):
            raise ValueError(f"{name}: an AOT function returns no number but its status; write its results as Tensors")
    else:
        if initial is not None and not declaration.written:
            raise ValueError(
                f"{name} returns its results; initial= is for outputs that it is given: "
                "write them as `*, Tensor(a!) out`"
            )
        if from_data and any(output.kind == "out" for output in declaration.outputs):
            raise ValueError(f"{name} needs results=: the bridge allocates the outputs that it fills")
        if from_data and gradient is not None:
            raise ValueError(f"{name} needs results= to have a gradient: without it, the shapes follow from data")
