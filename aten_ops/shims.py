"""Writes the C++ shims: one struct and one macro line for each operator."""

from __future__ import annotations

import pathlib

from torchgen.api.cpp import name as cpp_name
from torchgen.api.types import CppSignatureGroup
from torchgen.context import native_function_manager
from torchgen.model import Argument, ListType, NativeFunction, SchemaKind, Variant

from .facts import Fact, facts
from .model import Operator

# The closed set of argument types: schema type -> how a shim holds the decoded value. A type that is not here stops
# the generator. SymInt is int: shapes are concrete when a kernel is made.
HOLDERS = {
    "Tensor": "Tensor",
    "Tensor?": "OptionalTensor",
    "Tensor[]": "TensorList",
    "Tensor?[]": "OptionalTensorList",
    "Scalar": "at::Scalar",
    "Scalar?": "std::optional<at::Scalar>",
    "Scalar[]": "std::vector<at::Scalar>",
    "int": "int64_t",
    "int?": "std::optional<int64_t>",
    "int[]": "std::vector<int64_t>",
    "int[]?": "OptionalList<int64_t>",
    "float": "double",
    "float?": "std::optional<double>",
    "float[]": "std::vector<double>",
    "float[]?": "OptionalList<double>",
    "bool": "bool",
    "bool?": "std::optional<bool>",
    "str": "std::string",
    "str?": "std::optional<std::string>",
    "ScalarType": "c10::ScalarType",
    "ScalarType?": "std::optional<c10::ScalarType>",
    "Layout": "c10::Layout",
    "Layout?": "std::optional<c10::Layout>",
    "MemoryFormat": "c10::MemoryFormat",
    "MemoryFormat?": "std::optional<c10::MemoryFormat>",
    "DeviceIndex": "int64_t",
}
# Arguments that a shim does not take from the caller: schema type -> the C++ expression.
SUPPLIED = {
    "Generator?": "std::optional<at::Generator>()",  # the device's default generator, which bridge.manual_seed seeds
    "Device": "c.device()",
    "Device?": "c.device()",
}
HEADERS = {"CPU": "shim.h", "CUDA": "cuda/cuda_kernels.h"}  # what declares all that a shim calls but the ATen function
# The compiler takes as long for the headers as for 150 shims: few files, and two for two cores.
FILES = 2


def holder(argument: Argument) -> str:
    """The C++ type that holds this argument's decoded value."""
    type_ = argument.type
    if isinstance(type_, ListType) and str(type_.elem) == "bool":
        return f"std::array<bool, {type_.size}>"
    text = str(type_).replace("SymInt", "int")
    head, bracket, tail = text.partition("[")
    if bracket:  # int[2] is held as int[]: the size only lets callers write one int
        text = head + "[]" + tail.partition("]")[2]
    if text not in HOLDERS:
        raise NotImplementedError(f"{type_}: aten_ops/shims.py has no holder for this argument type")
    return HOLDERS[text]


def _expression(argument: Argument) -> str:
    if str(argument.type) in SUPPLIED:
        return SUPPLIED[str(argument.type)]
    return f"c({argument.name})" if argument.type.is_tensor_like() else argument.name


def call(target: NativeFunction) -> str:
    """The ATen call, as a C++ expression over the shim's members."""
    schema = target.func
    expressions = {a.name: _expression(a) for a in schema.arguments.flat_non_out}
    for i, out in enumerate(schema.arguments.out):
        expressions[out.name] = "c.outs()" if isinstance(out.type, ListType) else f"c.out({i})"
    # Functions with a binding written by hand (conj) are declared with the Tensor class only.
    has_function = Variant.function in target.variants and not target.manual_cpp_binding
    group = CppSignatureGroup.from_native_function(target, method=not has_function)
    is_out = schema.kind() == SchemaKind.out
    signature = group.signature if is_out or group.faithful_signature is None else group.faithful_signature
    with native_function_manager(target):
        passed = [expressions[binding.name] for binding in signature.arguments()]
    name = cpp_name(schema, faithful_name_for_out_overloads=False)
    if has_function:
        return f"at::{name}({', '.join(passed)})"
    return f"c(self).{name}({', '.join(passed)})"


def statement(operator: Operator, device: str) -> str:
    """What one launch does, over the shim's members."""
    assert operator.target is not None
    if device == "CUDA" and Fact.OWN_CUDA_KERNEL in facts(operator.name):
        passed = [_expression(argument) for argument in operator.function.func.arguments.flat_all]
        return f"cuda_kernels::{operator.symbol}(c, {', '.join(passed)})"
    return call(operator.target) if operator.writes_out else f"c.store([&] {{ return {call(operator.target)}; }})"


def shim(operator: Operator, device: str) -> str:
    """The C++ source of one operator."""
    schema = operator.function.func
    arguments = [a for a in schema.arguments.flat_all if str(a.type) not in SUPPLIED]
    members = "".join(f"  {holder(a)} {a.name};\n" for a in arguments)
    decoding = f" args >> {' >> '.join(a.name for a in arguments)}; " if arguments else ""
    args = "args" if arguments else ""
    is_tuple = "" if operator.gives_one_tensor else "_TUPLE"
    return (
        f"// {schema}\n"
        f"struct {operator.symbol}_shim {{\n{members}"
        f"  MS_EXT_ONCE explicit {operator.symbol}_shim(Arguments &{args}) {{{decoding}}}\n"
        f"  void operator()(Call &c) const {{ {statement(operator, device)}; }}\n"
        f"}};\n"
        f"MS_EXT_{device}_SHIM{is_tuple}({operator.symbol})\n"
    )


def write(operators: list[Operator], device: str, folder: pathlib.Path) -> list[pathlib.Path]:
    """Write the shims of a device ("CPU" or "CUDA") into `folder`; returns the files."""
    suffix = {"CPU": ".cpp", "CUDA": ".cu"}[device]
    selected = [operator for operator in operators if operator.target is not None]
    files: list[pathlib.Path] = []
    size = -(-len(selected) // FILES)
    for start in range(0, len(selected), size):
        chunk = selected[start : start + size]
        headers = sorted({str(op.target.root_name) for op in chunk if op.target is not None})
        text = (
            f'#include "{HEADERS[device]}"\n\n#include <ATen/core/List.h>\n'
            + "".join(f"#include <ATen/ops/{header}.h>\n" for header in headers)
            + "\nnamespace {\n\nusing namespace ms_ext;\n\n"
            + "\n".join(shim(op, device) for op in chunk)
            + "\n}  // namespace\n"
        )
        path = folder / f"shims_{len(files):02d}{suffix}"
        path.write_text(text)
        files.append(path)
    return files
