"""Gradient lines: `gradient=` in the form of derivatives.yaml.

A line gives, for arguments, a function and what it is called with:

    "a: f_backward(grad, a, n), b: aten.mul(grad, a), c: grad, index: None"
    "a, b: f_backward(grad, a, b, result)"

What a function may be called with: the kernel's arguments by name; `grad`, the gradient of the result, or `grads[1]`;
`result`, or `result1`; sizes, `a.shape[2]` or `a.shape`; Python literals. Results that have names in the schema may be
called by them. `None`, or `not_differentiable` as in derivatives.yaml, stands for zeros.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any, Literal

from bridge.kernels.declaration import Declaration
from bridge.op.table import packets

_ENTRY = re.compile(
    r"\s*(?P<variables>\w+(?:\s*,\s*\w+)*)\s*:(?!:)\s*"
    r"(?:(?P<constant>not_differentiable|None)|(?P<passed>grad(?:s\[\d+\])?)|(?P<function>[\w.:]+)\s*\((?P<arguments>[^()]*)\))"
    r"\s*(?:,|$)"
)


@dataclass(frozen=True)
class Reference:
    """What a function of a line is called with."""

    kind: Literal["argument", "grad", "result", "shape", "literal"]
    value: Any
    """The argument's name, the position of the result, the argument's name with a dimension or None, or the literal."""
    keyword: str = ""
    """By which name it is passed; empty if by position."""


@dataclass(frozen=True)
class Entry:
    """One entry of a line: the gradients of `variables` are what `function` returns, or, if that is empty, what it
    would be called with."""

    variables: tuple[str, ...]
    function: str
    references: tuple[Reference, ...]


@dataclass(frozen=True)
class Line:
    """A parsed line."""

    entries: tuple[Entry, ...]
    constant: tuple[str, ...]
    """The arguments that are not differentiable."""


def parse(line: str, declaration: Declaration) -> Line:
    """Read a gradient line. Raises ValueError that says what is wrong with it."""
    owner = f"the gradient line of {declaration.name}"
    if "List[Tensor]" in declaration.returns:
        raise ValueError(f"{owner}: a list of results needs a Python function as its gradient")
    entries: list[Entry] = []
    constant: list[str] = []
    position = 0
    while line[position:].strip():
        match = _ENTRY.match(line, position)
        if match is None:
            raise ValueError(
                f"{owner} cannot be read at {line[position:].strip()!r}: it is made of entries such as "
                "`a: f_backward(grad, a)`, `a: grad` or `a: None`"
            )
        position = match.end()
        names = tuple(re.split(r"\s*,\s*", match["variables"]))
        for name in names:
            argument = declaration.argument(name)
            if argument is None or argument.base != "Tensor" or argument.is_list:
                raise ValueError(
                    f"{owner} has a gradient for {name!r}, which is not one of its Tensor arguments: {declaration.text}"
                )
            if name in constant or any(name in entry.variables for entry in entries):
                raise ValueError(f"{owner} has two gradients for {name!r}")
        if match["constant"]:
            constant += names
            continue
        passed = match["passed"] or match["arguments"]
        references = tuple(_reference(part.strip(), declaration, owner) for part in passed.split(",") if part.strip())
        if match["passed"] and len(names) > 1:
            raise ValueError(f"{owner} gives {' and '.join(names)} one gradient, {passed}; write an entry for each")
        entries.append(Entry(names, match["function"] or "", references))
    return Line(tuple(entries), tuple(constant))


def _reference(passed: str, declaration: Declaration, owner: str) -> Reference:
    keyword, _, text = (part.strip() for part in passed.rpartition("="))
    if declaration.argument(text) is not None:
        return Reference("argument", text, keyword)
    size = re.fullmatch(r"(\w+)\.shape(?:\[(-?\d+)\])?", text)
    sized = declaration.argument(size[1]) if size else None
    if size and sized is not None and sized.base == "Tensor" and not sized.is_list:
        return Reference("shape", (size[1], int(size[2]) if size[2] else None), keyword)
    count = len(declaration.outputs)
    patterns: dict[Literal["grad", "result"], str] = {"grad": r"grad(?:s\[(\d+)\])?", "result": r"result(\d+)?"}
    for kind, pattern in patterns.items():
        match = re.fullmatch(pattern, text)
        if match:
            place = int(match[1] or 0)
            if place >= count:
                raise ValueError(f"{owner} uses {text}, but {declaration.name} has {count} result(s)")
            return Reference(kind, place, keyword)
    for i, output in enumerate(declaration.outputs):
        if output.name == text:
            return Reference("result", i, keyword)
    try:
        return Reference("literal", ast.literal_eval(text), keyword)
    except (ValueError, SyntaxError):
        raise ValueError(
            f"{owner} uses {text!r}, which is none of: {', '.join(a.name for a in declaration.arguments)}, grad, "
            "grads[i], result, resulti, the shape of a Tensor argument, a literal"
        ) from None


def aten_names(function: str) -> list[str]:
    """The overloads of "aten.mul" or "aten.mul.Tensor". Raises ValueError if ATen has none of that name."""
    name = function.removeprefix("aten.")
    packet = name.partition(".")[0]
    found = [full for full in packets().get(packet, []) if name in (packet, full)]
    if not found:
        raise ValueError(f"a gradient line calls {function}, but the bridge has no ATen operator of that name")
    return found
