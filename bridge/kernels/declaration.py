"""What a user says of a kernel: the schema line, what its results look like, and what they hold before it runs."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bridge.call.arguments import CONVERTIBLE
from bridge.op.schema import Argument, argument

# What `results=` may be: the names of arguments that the results are like, or a function of the arguments on tensors of
# the `meta` device.
Results = str | Callable[..., Any] | None
# What `initial=` may be: "zeros" or the name of an argument, for all outputs or by output.
Initial = str | Mapping[str, str] | None


@dataclass(frozen=True)
class Output:
    """One result of a kernel.

    `initial` is None for one that the function returns or writes to in full, "zeros", or the name of the argument that
    it starts as a copy of.
    """

    name: str
    kind: str
    """"returned", "out" (the function gets it to fill), or "in_out" (an argument that it changes, as a copy)."""
    initial: str | None


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
    """The types of what it returns: "Tensor" or "List[Tensor]"."""

    @property
    def name(self) -> str:
        """The function's name without namespaces."""
        return self.function.rpartition("::")[2]

    def argument(self, name: str) -> Argument | None:
        return next((a for a in self.arguments if a.name == name), None)

    @property
    def result_types(self) -> list[str]:
        return ["Tensor" for output in self.outputs if output.kind != "returned"] + list(self.returns)


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
    returned = [r for r in raw.returns if r.alias_info is None]
    returns = tuple(str(r.type) for r in returned)
    if outputs and returned:
        raise ValueError(f"the schema {text!r} both returns tensors and writes to arguments; it can do one of the two")
    if not outputs and not returned:
        raise ValueError(f"the schema {text!r} has no result; write `-> Tensor`, or mark an output, Tensor(a!) out")
    if set(returns) - {"Tensor"} and returns != ("List[Tensor]",):
        raise ValueError(f"the schema {text!r} has results other than tensors, or than one list of them")
    outputs += [Output(r.name or f"result{i}", "returned", None) for i, r in enumerate(returned)]
    full = raw.name if not raw.overload_name else f"{raw.name}.{raw.overload_name}"
    if raw.overload_name:
        raise ValueError(f"the schema {text!r} names an overload, {full}; a C++ function has none")
    found = Declaration(text, raw.name, tuple(arguments), tuple(parameters), tuple(outputs), returns)
    return _with_initial(found, initial) if initial is not None else found


def _with_initial(declaration: Declaration, initial: Initial) -> Declaration:
    names = [output.name for output in declaration.outputs]
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
    outputs = tuple(
        Output(output.name, output.kind, wanted.get(output.name)) for output in declaration.outputs
    )
    return Declaration(
        declaration.text, declaration.function, declaration.arguments, declaration.parameters, outputs,
        declaration.returns,
    )  # fmt: skip


def inference(declaration: Declaration, results: Results) -> Callable[..., Any] | None:
    """The function that gives tensors like the kernel's results; None if they follow from data.

    Raises ValueError if `results` does not fit the schema.
    """
    told = [output for output in declaration.outputs if output.kind != "in_out"]
    if results is None:
        return None if told else lambda *args, **kwargs: _like(declaration, args, kwargs, [])
    if callable(results):
        return lambda *args, **kwargs: _called(declaration, results, len(told), args, kwargs)
    named = [part for part in re.split(r"[\s,]+", results) if part]
    if "List[Tensor]" in declaration.returns:  # a name stands for one tensor
        raise ValueError(f"results= of {declaration.name} has to be a function, because a result is a list")
    if len(named) != len(told):
        raise ValueError(
            f"results= of {declaration.name} is {results!r}, {len(named)} name(s), but it has {len(told)} result(s) to "
            "describe"
        )
    for part in named:
        source = declaration.argument(part)
        if source is None or source.base != "Tensor" or source.is_list or source.is_optional:
            raise ValueError(
                f"results= of {declaration.name} names {part!r}, which is not one of its Tensor arguments; for other "
                "shapes or dtypes give a function that returns torch.empty(...)"
            )
    return lambda *args, **kwargs: _like(declaration, args, kwargs, named)


def _values(declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    positional = [a.name for a in declaration.arguments if not a.keyword_only]
    return dict(zip(positional, args, strict=True)) | kwargs


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _like(declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any], named: list[str]) -> list[Any]:
    values = _values(declaration, args, kwargs)
    rest = iter(named)
    sources = [output.name if output.kind == "in_out" else next(rest) for output in declaration.outputs]
    return [_empty_like(values[source]) for source in sources]


def _called(
    declaration: Declaration, results: Callable[..., Any], count: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    given = results(*args, **kwargs)
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    wrong = next((item for item in found if not isinstance(item, torch.Tensor)), None)
    if wrong is not None:
        raise TypeError(f"results= returned {type(wrong).__name__}, but it has to return tensors: torch.empty(...)")
    if declaration.returns == ("List[Tensor]",):
        return found
    if len(found) != count:
        raise ValueError(
            f"results= returned {len(found)} tensor(s), but the schema has {count} result(s): {declaration.text}"
        )
    values = _values(declaration, args, kwargs)
    rest = iter(found)
    return [_empty_like(values[o.name]) if o.kind == "in_out" else next(rest) for o in declaration.outputs]
