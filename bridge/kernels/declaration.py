"""What a user says of a kernel: the schema line, and what outputs hold before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from bridge.call.arguments import CONVERTIBLE
from bridge.op.schema import Argument, argument

# What an output of a kernel is: what the function returns, what it gets to fill, or an argument that it changes, as a
# copy.
OutputKind = Literal["returned", "out", "in_out"]

# What `initial=` may be: "zeros" or the name of an argument, for all outputs or by output.
Initial = str | Mapping[str, str] | None


@dataclass(frozen=True)
class Output:
    """One result of a kernel.

    `initial` is None for one that the function returns or writes to in full, "zeros", or the name of the argument that
    it starts as a copy of. `number` is a dtype's name where the function returns a number, which becomes a tensor of no
    dimensions.
    """

    name: str
    kind: OutputKind
    initial: str | None
    number: str = ""


# The dtypes of the numbers that a function may return.
_NUMBERS = {"int": "int64", "float": "float64", "bool": "bool"}


@dataclass(frozen=True)
class Declaration:
    """A parsed schema line."""

    text: str
    function: str
    """The C++ name, with namespaces."""
    arguments: tuple[Argument, ...]
    """What a caller passes."""
    parameters: tuple[tuple[str, Argument | int], ...]
    """What the function takes, in order: name, and the argument, or the position of the output that stands for it."""
    outputs: tuple[Output, ...]
    returns: tuple[str, ...]
    """The types of what it returns besides arguments that it changes: "Tensor", "List[Tensor]", "int", "float",
    "bool"."""
    returned_at: tuple[int, ...] = ()
    """Where these are among all that the function returns."""

    @property
    def name(self) -> str:
        """The function's name without namespaces."""
        return self.function.rpartition("::")[2]

    @property
    def written(self) -> int:
        """How many results are arguments that the function writes to. They come before those that it returns."""
        return sum(output.kind != "returned" for output in self.outputs)

    @property
    def told(self) -> list[Output]:
        """The outputs that `results=` has to describe."""
        return [output for output in self.outputs if output.kind != "in_out" and not output.number]

    def argument(self, name: str) -> Argument | None:
        return next((a for a in self.arguments if a.name == name), None)

    @property
    def result_types(self) -> list[str]:
        returned = ["Tensor" if type_ in _NUMBERS else type_ for type_ in self.returns]
        return ["Tensor" for output in self.outputs if output.kind != "returned"] + returned


def _parse(line: str) -> Any:
    try:
        return torch._C.parse_schema(line.strip())
    except RuntimeError as error:
        words = str(error).strip()
        raise ValueError(f"the schema {line.strip()!r} cannot be read: {words}") from None


def parse(line: str, initial: Initial = None) -> Declaration:
    """Read a schema line as in native_functions.yaml.

    A keyword-only argument that is written to, `*, Tensor(a!) out`, is an output that the function fills; any other,
    `Tensor(a!) x`, is changed in a copy, which is a result. `initial` says what outputs hold before the call.

    Raises ValueError that says what is wrong with the line.
    """
    raw = _parse(line)
    text = line.strip()
    arguments: list[Argument] = []
    parameters: list[tuple[str, Argument | int]] = []
    outputs: list[Output] = []
    for item in raw.arguments:
        parsed = argument(item)
        if parsed.base not in CONVERTIBLE:
            raise ValueError(
                f"the schema {text!r} has an argument of the unknown type {parsed.base!r}; the types are those of "
                "native_functions.yaml: Tensor, int (int64_t), float (double), bool, str, Scalar, ScalarType, ..."
            )
        written = item.alias_info is not None and item.alias_info.is_write
        if written and (parsed.base != "Tensor" or parsed.is_list or parsed.is_optional):
            raise ValueError(f"the schema {text!r} writes to {parsed.name!r}, which has to be a Tensor for that")
        if written:
            outputs.append(Output(parsed.name, "out" if parsed.keyword_only else "in_out", None))
        parameters.append((parsed.name, len(outputs) - 1 if written else parsed))
        if not (written and parsed.keyword_only):
            arguments.append(parsed)
    returned_at = tuple(i for i, r in enumerate(raw.returns) if r.alias_info is None)
    returned = [raw.returns[i] for i in returned_at]
    returns = tuple(str(r.type) for r in returned)
    if not outputs and not returned:
        raise ValueError(f"the schema {text!r} has no result; write `-> Tensor`, or mark an output, Tensor(a!) out")
    if set(returns) - {"Tensor", *_NUMBERS} and (returns != ("List[Tensor]",) or outputs):
        raise ValueError(f"the schema {text!r} has results other than tensors and numbers, or than one list of tensors")
    outputs += [
        Output(r.name or f"result{i}", "returned", None, _NUMBERS.get(str(r.type), ""))
        for i, r in enumerate(returned, len(outputs))
    ]
    full = raw.name if not raw.overload_name else f"{raw.name}.{raw.overload_name}"
    if raw.overload_name:
        raise ValueError(f"the schema {text!r} names an overload, {full}; a C++ function has none")
    found = Declaration(text, raw.name, tuple(arguments), tuple(parameters), tuple(outputs), returns, returned_at)
    return _with_initial(found, initial) if initial is not None else found


def _with_initial(declaration: Declaration, initial: Initial) -> Declaration:
    given = [output for output in declaration.outputs if output.kind != "returned"] or declaration.outputs
    names = [output.name for output in given]
    wanted = dict.fromkeys(names, initial) if isinstance(initial, str) else dict(initial or {})
    for name, value in wanted.items():
        if name not in names:
            raise ValueError(f"initial= names {name!r}, but the outputs of {declaration.name} are {', '.join(names)}")
        source = declaration.argument(value)
        if value != "zeros" and (source is None or source.base != "Tensor" or source.is_list or source.is_optional):
            raise ValueError(
                f"initial= of {declaration.name} is {value!r} for {name!r}; it can be 'zeros' or the name of a Tensor "
                "argument"
            )
    outputs = tuple(replace(output, initial=wanted.get(output.name)) for output in declaration.outputs)
    return replace(declaration, outputs=outputs)
