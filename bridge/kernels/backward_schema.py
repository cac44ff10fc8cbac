"""The schemas of the functions that a gradient line calls. They follow from the line."""

from __future__ import annotations

from typing import Any

from bridge.kernels.declaration import Declaration
from bridge.kernels.gradient_line import Entry


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
        elif reference.kind == "shape":
            type_ = "int[]" if reference.value[1] is None else "int"
            name = f"shape_{i}"
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
