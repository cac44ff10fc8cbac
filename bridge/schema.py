"""What the bridge knows of each overload: ATen's schema, and the table that the generator wrote."""
from __future__ import annotations

import functools
import json
import pathlib
import re
from dataclasses import dataclass
from typing import Any

import torch


@functools.cache
def table() -> dict[str, dict[str, Any]]:
    """The generated table: overload name ("add.Tensor") -> schema, shim, devices, flags or the reason of a skip."""
    return json.loads((pathlib.Path(__file__).parent / "operators.json").read_text())


@dataclass(frozen=True)
class Argument:
    """One argument of a schema."""

    name: str
    base: str
    """A key of bridge.arguments._CONVERTERS: "Tensor", "int", "number", "ScalarType", ..."""
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


# A schema gives default dtypes and memory formats as PyTorch's numbers for them.
_DEFAULT_NAMES = {"ScalarType": {4: "int64"}, "MemoryFormat": {0: "contiguous_format", 1: "preserve_format"}}


def _argument(raw: Any) -> Argument:
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


class Schema:
    """One overload that the bridge can call."""

    def __init__(self, name: str) -> None:
        row = table()[name]
        packet, _, overload = name.partition(".")
        self.name = name
        self.packet = packet
        self.text: str = row["schema"]
        self.shim: str | None = row["shim"]
        self.devices: list[str] = row["devices"]
        self.random: bool = row["random"]
        # "formula", "composite", "constant" or "none" (aten_ops/model.py), and why if it is one of the last two.
        self.gradient: str = row["gradient"]
        self.gradient_reason: str = row.get("gradient_reason", "")
        self.differentiable = not self.gradient_reason
        # The backward shim, if there is one: whether it uses the results, and which results autograd tracks.
        self.backward: dict[str, Any] | None = None if self.random else row.get("backward")
        self.torch_op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        raw = self.torch_op._schema
        self.arguments = [_argument(a) for a in raw.arguments]
        self.positional = [a for a in self.arguments if not a.keyword_only]
        self.results = [str(r.type) for r in raw.returns]
        # Whether the gradient has to draw again what the call drew: the kernel then also gives the generator's state.
        self.redraws = self.random and self.differentiable and self.shim is not None
        # Whether a primitive's flat results have to be brought into another form (bridge/results.py).
        lists = "List[Tensor]" in self.results and len(self.results) > 1
        self.nested = self.redraws or lists or self.output_mask is not None

    @property
    def output_mask(self) -> int | None:
        """The position of the bool[N] argument that says which of the N results are wanted."""
        for i, argument in enumerate(self.arguments):
            if argument.base == "bool" and argument.is_list and argument.size == len(self.results):
                return i
        return None


@functools.cache
def schema(name: str) -> Schema:
    """The schema of a callable overload by its full name, as in "add.Tensor"."""
    return Schema(name)


@functools.cache
def packets() -> dict[str, list[str]]:
    """The callable overloads of each operator name, in the order in which PyTorch resolves them."""
    found: dict[str, list[str]] = {}
    for name, row in table().items():
        if "skipped" not in row:
            found.setdefault(name.partition(".")[0], []).append(name)
    return found
