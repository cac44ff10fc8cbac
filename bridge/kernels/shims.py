"""Writes the C++ between MindSpore and a kernel of the user's."""

from __future__ import annotations

import functools
import json
import pathlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bridge.kernels.declaration import Declaration, Output
from bridge.op.schema import Argument
from bridge.op.table import Variant


@functools.cache
def _holders() -> dict[str, str]:
    """Schema type -> how a shim holds the decoded value: the table of aten_ops/shims.py."""
    return json.loads((pathlib.Path(__file__).parent.parent / "holders.json").read_text())


# How MindSpore calls a function: as it is, or by a shim around it.
Form = Literal["aot", "extension"]


@dataclass(frozen=True)
class Function:
    """One C++ function that gets a shim.

    Args:
        form: how MindSpore calls it.
        declaration: its schema.
        expression: what stands for it in C++, where the schema's name is not enough.
        hidden: how many arguments at the end the function does not get.
        like: of a function of a gradient line, the arguments that its results are like: for one that it leaves
            undefined, zeros take its place.
    """

    form: Form
    declaration: Declaration
    expression: str = ""
    hidden: int = 0
    like: tuple[str, ...] = ()

    @property
    def cpp_name(self) -> str:
        """Its name in C++, with namespaces: of `static_cast<...>(lib::f<float>)` it is lib::f."""
        return (
            re.findall(r"[A-Za-z_][\w:]*", _without_brackets(self.expression))[-1]
            if self.expression
            else (self.declaration.function)
        )

    @property
    def identifier(self) -> str:
        """What C++ calls what is made for it. That of an AOT kernel is the function itself."""
        own_gradient = "_of_gradient" if self.like and self.form == "extension" else ""
        return self.declaration.function.replace("::", "__") + own_gradient


def _without_brackets(expression: str) -> str:
    shorter = re.sub(r"<[^<>]*>", "", expression)
    return shorter if shorter == expression else _without_brackets(shorter)


def symbol(function: Function) -> str:
    """The name that MindSpore calls the shim by."""
    return f"aten_{function.identifier}"


def text(functions: Sequence[Function], source: pathlib.Path | None, device: Variant) -> str:
    """The C++ of the functions' shims.

    Args:
        functions: of one source; those of AOT kernels have none.
        source: the file that has them, which the shims include.
        device: "CPU" or "CUDA".
    """
    if functions[0].form == "aot":
        header = {"CPU": "aot.h", "CUDA": "aot_cuda.h"}[device]
        return "\n".join([f'#include "{header}"\n', *(_aot(function, device) for function in functions)])
    included = [] if source is None else [f"#include {_quoted(str(source))}\n"]
    return "\n".join(['#include "function.h"\n', *included, *(_extension(f, device) for f in functions)])


def _holder(argument: Argument, declaration: Declaration) -> str:
    try:
        return _holders()[argument.schema_type]
    except KeyError:
        raise ValueError(
            f"the schema {declaration.text!r} has {argument.name!r} of type {argument.schema_type}, which a kernel of "
            "one's own cannot take"
        ) from None


def _is_tensor(argument: Argument) -> bool:
    return argument.base == "Tensor"


def _quoted(text: str) -> str:
    return json.dumps(text)


def _extension(function: Function, device: Variant) -> str:
    """The shim of a function of a PyTorch extension."""
    name = function.identifier
    form = "" if function.declaration.result_types == ["Tensor"] else "_TUPLE"
    return (
        f"namespace ms_ext::kernels {{\n{_extension_struct(function)}}}  // namespace ms_ext::kernels\n"
        f"using ms_ext::kernels::{name}_shim;\nMS_EXT_{device}_SHIM{form}({name})\nMS_EXT_RUN({name})\n"
        f"MS_EXT_SCHEMA({name}, {_quoted(function.declaration.text)})\n"
    )


def _extension_struct(function: Function) -> str:
    declaration = function.declaration
    name, target = function.identifier, function.expression or f"::{declaration.function}"
    shown = declaration.parameters[: len(declaration.parameters) - function.hidden]
    message = f"{declaration.function}: the schema has {len(shown)} argument(s), the function has another number"
    checks = [f"static_assert({name}_takes::count == {len(shown)}, {_quoted(message)});\n"]
    passed = []
    for i, (parameter, what) in enumerate(shown):
        if isinstance(what, int):
            holder, expression = "Tensor", f"c.out({what})"
        else:
            holder = _holder(what, declaration)
            expression = f"c({_member(parameter)})" if _is_tensor(what) else _member(parameter)
        type_ = "Tensor" if isinstance(what, int) else what.schema_type
        message = (
            f"{declaration.function}: argument '{parameter}' is {type_} in the schema, but of another type in the "
            "function"
        )
        checks.append(f"static_assert({name}_takes::fits<{i}, {holder}>, {_quoted(message)});\n")
        passed.append(expression)
    members = "".join(f"  {_holder(a, declaration)} {_member(a.name)};\n" for a in declaration.arguments)
    names = [_member(a.name) for a in declaration.arguments]
    decoding = " >> ".join(["args", *names]) + ";" if names else ""
    checks.append(f"static_assert({name}_takes::returns, {_quoted(_RETURNS.format(declaration.function))});\n")
    body = [_initialise(i, output) for i, output in enumerate(declaration.outputs) if output.kind != "returned"]
    body.append(_call(function, f"call({', '.join([target, *passed])})"))
    statements = "".join(f"    {line}\n" for line in body if line)
    return (
        f"// {declaration.text}\n"
        f"using {name}_takes = Parameters<FunctionType<decltype({target})>>;\n{''.join(checks)}"
        f"struct {name}_shim {{\n{members}"
        f"  explicit {name}_shim(Arguments &{'args' if decoding else ''}) {{ {decoding} }}\n"
        f"  void operator()(Call &c) const {{\n{statements}  }}\n"
        f"}};\n"
    )


def _member(argument: str) -> str:
    """The name of an argument in the shim, where it hides nothing that the shim calls, and is no word of C++."""
    return f"in_{argument}"


_RETURNS = (
    "{} returns something else than tensors and numbers, or pairs, tuples, arrays, vectors and optionals of these"
)


def _call(function: Function, call: str) -> str:
    """The statement that calls the function and stores what it returns."""
    declaration = function.declaration
    if not declaration.returns:
        return f"{call};"
    found = f"flat({call})"
    if function.like:
        found = f"without_undefined({found}, {{{', '.join(f'c({_member(name)})' for name in function.like)}}})"
    if declaration.written:
        places = ", ".join(map(str, declaration.returned_at))
        found = f"with_written(c, {declaration.written}, {found}, {{{places}}})"
    return f"c.store([&] {{ return {found}; }});"


def _initialise(place: int, output: Output) -> str:
    source = output.name if output.kind == "in_out" else output.initial
    if source is None:
        return ""
    return f"c.out({place}).zero_();" if source == "zeros" else f"c.out({place}).copy_(c({_member(source)}));"


def _aot(function: Function, device: Variant) -> str:
    """The wrapper of a plain AOT function."""
    declaration = function.declaration
    name = function.identifier
    memory = {"CPU": "ms_ext::kHost", "CUDA": "ms_ext::kCuda"}[device]
    tensors = [a.name for a in declaration.arguments if _is_tensor(a)]
    initial = ", ".join(_initial(output, tensors) for output in declaration.outputs)
    shape = "ms_ext::Shape" if declaration.result_types == ["Tensor"] else "ms_ext::Shapes"
    return (
        f"// {declaration.text}\n"
        f'extern "C" ms_ext::AotFunction {name};\n'
        f"MS_EXT_AOT({name}, {shape}, {memory}, {len(tensors)}, {function.hidden}, {initial})\n"
        f"MS_EXT_SCHEMA({name}, {_quoted(declaration.text)})\n"
    )


def _initial(output: Output, tensors: list[str]) -> str:
    source = output.name if output.kind == "in_out" else output.initial
    if source is None:
        return "ms_ext::kUninitialised"
    return "ms_ext::kZeros" if source == "zeros" else str(tensors.index(source))
