"""What a call of an operator takes and gives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Argument:
    """One argument of a schema."""

    name: str
    base: str
    """A key of the converters in bridge/call/arguments.py: "Tensor", "int", "number", "ScalarType", ..."""
    is_list: bool
    is_optional: bool
    items_optional: bool
    size: int | None
    """The N of int[N]: one int stands for N equal ones."""
    keyword_only: bool
    required: bool
    default: Any

    @property
    def type_name(self) -> str:
        """The type in the words of PyTorch's error messages."""
        plain = {"number": "Number", "ScalarType": "dtype"}.get(self.base, self.base)
        return f"tuple of {plain}s" if self.is_list else plain

    @property
    def schema_type(self) -> str:
        """The type as in native_functions.yaml, an int[2] as int[]."""
        base = {"number": "Scalar"}.get(self.base, self.base)
        items = f"{base}{'?' * self.items_optional}[]" if self.is_list else base
        return items + "?" * self.is_optional


# A schema gives default dtypes and memory formats as PyTorch's numbers for them.
_DEFAULT_NAMES = {"ScalarType": {4: "int64"}, "MemoryFormat": {0: "contiguous_format", 1: "preserve_format"}}


def argument(raw: Any) -> Argument:
    """An argument of a schema that PyTorch has parsed."""
    text = str(raw.real_type)
    optional = re.fullmatch(r"Optional\[(.*)\]", text)
    if optional:
        text = optional[1]
    listed = re.fullmatch(r"List\[(.*)\]", text)
    if listed:
        text = listed[1]
    item_optional = re.fullmatch(r"Optional\[(.*)\]", text)
    if item_optional:
        text = item_optional[1]
    return Argument(
        name=raw.name,
        base="int" if text in ("SymInt", "DeviceIndex") else text,
        is_list=bool(listed),
        is_optional=bool(optional),
        items_optional=bool(item_optional),
        size=raw.N,
        keyword_only=raw.kwarg_only,
        required=not raw.has_default_value(),
        default=_DEFAULT_NAMES[text].get(raw.default_value) if text in _DEFAULT_NAMES else raw.default_value,
    )


@dataclass(frozen=True)
class Schema:
    """What one operator, or one overload of it, takes and gives."""

    name: str
    """The full name: of an ATen overload as in "add.Tensor", else with a namespace as in "ns::name.overload"."""
    text: str
    """The line as in native_functions.yaml, for documentation and messages."""
    arguments: tuple[Argument, ...]
    results: tuple[str, ...]
    """The type of each result: "Tensor", "List[Tensor]", ..."""
    result_names: tuple[str | None, ...] = ()

    @property
    def packet(self) -> str:
        """The name without the overload's."""
        return self.name.partition(".")[0]

    @property
    def is_aten(self) -> bool:
        return "::" not in self.name

    @property
    def positional(self) -> list[Argument]:
        return [a for a in self.arguments if not a.keyword_only]

    @property
    def gives_tensors(self) -> bool:
        """Whether its results are tensors and lists of tensors, and nothing else."""
        return bool(self.results) and set(self.results) <= {"Tensor", "List[Tensor]"}

    @property
    def output_mask(self) -> int | None:
        """The position of the bool[N] argument that says which of the N results are wanted."""
        for i, argument in enumerate(self.arguments):
            if argument.base == "bool" and argument.is_list and argument.size == len(self.results):
                return i
        return None


def parsed(name: str, raw: Any) -> Schema:
    """The schema, under this name, that PyTorch has parsed."""
    return Schema(
        name,
        str(raw),
        tuple(map(argument, raw.arguments)),
        tuple(str(result.type) for result in raw.returns),
        tuple(result.name for result in raw.returns),
    )


def label(name: str) -> str:
    """What errors call an operator."""
    return name if "::" in name else f"aten.{name}"
