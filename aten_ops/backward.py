"""Writes the backward shims: the overload's own node of PyTorch's autograd, filled and applied.

`ms_ext/backward.h` shows one. An overload whose formula needs something that is not in the tables below is left to
PyTorch's engine over a recomputation (ms_ext/gradient/gradient.cpp), which differentiates everything.
"""

from __future__ import annotations

import pathlib
import re

from torchgen.model import Argument, ListType

from .model import Operator, derivatives
from .shims import SUPPLIED, holder

# Types of saved fields that hold tensors: the field's name ends in an underscore, and it is a SavedVariable or a list.
_TENSOR_TYPES = (
    "at::Tensor",
    "::std::optional<at::Tensor>",
    "at::TensorList",
    "at::ITensorListRef",
    "const c10::List<::std::optional<at::Tensor>> &",
    "c10::List<::std::optional<at::Tensor>>",
    "::std::vector<at::Tensor>",
)

# Expressions of saved fields that the shims can evaluate: members of tensors, and the helpers in ms_ext/backward.h.
_EXPRESSION = re.compile(
    r"\w+"
    r"|\w+\.(sym_sizes|scalar_type|layout|options|dim|sym_numel)\(\)"
    r"|\w+\.sym_size\(-?\d+\)"
    r"|(strides_or_error|to_args_sizes_symint|to_args_sizes|to_args_scalartypes)\(\w+(, \"\w+\")?\)"
    r"|bias\.has_value\(\) \? .*"
)


def _is_tensor(argument: Argument) -> bool:
    return argument.type.is_tensor_like()


def reason_against(operator: Operator) -> str:
    """Why the overload gets no backward shim; empty if it gets one."""
    info = derivatives().get(operator.function.func)
    schema = operator.function.func
    if operator.target is None or info is None or operator.gradient != "formula":
        return "no formula or no forward shim"
    if schema.name.name.base.startswith("_foreach"):
        return "its node works on slices"
    if set(operator.results) - {"Tensor"} and operator.results != ["Tensor[]"]:
        return "its results are nested"
    if any(str(a.type).startswith("bool[") for a in schema.arguments.flat_all):
        return "its results are optional"
    for saved in (*info.all_saved_inputs, *info.all_saved_outputs):
        if not _EXPRESSION.fullmatch(saved.expr):
            return f"saves {saved.expr}"
    names = {a.name for a in schema.arguments.flat_all}
    derived = {name for d in info.derivatives for name in d.var_names}
    return "" if derived <= names else "differentiates something that is no argument"


def uses_results(operator: Operator) -> bool:
    """Whether the formula looks at the overload's results."""
    return bool(derivatives()[operator.function.func].all_saved_outputs)


def differentiable_results(operator: Operator) -> str:
    """A 0 or 1 for each result: whether autograd tracks it; empty if it tracks all."""
    flags = derivatives()[operator.function.func].output_differentiability
    return "".join(str(int(flag)) for flag in flags) if flags else ""


def shim(operator: Operator, device: str) -> str:
    """The C++ source of one backward."""
    schema = operator.function.func
    info = derivatives()[schema]
    arguments = [a for a in schema.arguments.flat_all if str(a.type) not in SUPPLIED]
    name = f"{operator.symbol}_derivative"
    members = "".join(f"  {holder(a)} {a.name};\n" for a in arguments)
    decoding = " >> ".join(["saved", *(a.name for a in arguments)])
    used = " ".join(s.expr for s in (*info.all_saved_inputs, *info.all_saved_outputs))
    wanted = [a for a in schema.arguments.flat_all if a.name in {v for d in info.derivatives for v in d.var_names}]
    body = []
    for argument in arguments:
        if _is_tensor(argument) and (re.search(rf"\b{argument.name}\b", used) or argument in wanted):
            body.append(f"const auto &{argument.name} = c(this->{argument.name});")
    results = [r.name or ("result" if len(schema.returns) == 1 else f"result{i}") for i, r in enumerate(schema.returns)]
    for i, result in enumerate(results):
        if any(re.search(rf"\b{result}\b", s.expr) for s in info.all_saved_outputs):
            value = "saved.all_results(c)" if isinstance(schema.returns[i].type, ListType) else f"saved.result(c, {i})"
            body.append(f"const auto {result} = {value};")
    body.append(f"Backward<generated::{info.op}> node(c, saved);")
    for saved in (*info.all_saved_inputs, *info.all_saved_outputs):
        field = saved.nctype.name if isinstance(saved.nctype.name, str) else saved.nctype.name.name
        suffix = "_" if saved.nctype.type.cpp_type(strip_ref=True) in _TENSOR_TYPES else ""
        body.append(f"node.save(node->{field}{suffix}, {saved.expr});")
    for argument in wanted:
        if str(argument.type) == "Tensor[]":
            body.append(f"node->{argument.name}_size_ = {argument.name}.size();")
        body.append(f"node.wants({argument.name});")
    body.append("node.apply();")
    lines = "".join(f"    {line}\n" for line in body)
    return (
        f"// {schema}\n"
        f"struct {name}_shim {{\n  Saved saved;\n{members}"
        f"  MS_EXT_ONCE explicit {name}_shim(Arguments &args) {{ args >> {decoding}; }}\n"
        f"  void operator()(Call &c) const {{\n{lines}  }}\n"
        f"}};\n"
        f"MS_EXT_{device}_SHIM_TUPLE({name})\n"
    )


def write(operators: list[Operator], device: str, folder: pathlib.Path) -> None:
    """Write the backward shims of a device ("CPU" or "CUDA") into `folder`."""
    suffix = {"CPU": ".cpp", "CUDA": ".cu"}[device]
    selected = [operator for operator in operators if not reason_against(operator)]
    text = (
        '#include "backward.h"\n\nnamespace {\n\nusing namespace ms_ext;\n\n'
        + "\n".join(shim(op, device) for op in selected)
        + "\n}  // namespace\n"
    )
    (folder / f"backward{suffix}").write_text(text)  # one file: its headers take the compiler longer than the shims
