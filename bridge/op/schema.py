"""What the bridge knows of each overload: ATen's schema, and the table that the generator wrote."""

from __future__ import annotations

import enum
import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bridge.op.encoding import Text
from bridge.op.table import SHIMS, Fact, facts, table


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


def parts(raw: Any) -> tuple[list[Argument], list[str]]:
    """The arguments, and the types of the results, of a schema that PyTorch has parsed."""
    return [argument(each) for each in raw.arguments], [str(result.type) for result in raw.returns]


class GradientKind(enum.Enum):
    """How PyTorch differentiates an operator (aten_ops/model.py)."""

    FORMULA = "formula"
    """By a formula of its own."""
    COMPOSITE = "composite"
    """Through its parts."""
    CONSTANT = "constant"
    """Not at all: its results are constants to autograd."""
    NONE = "none"
    """Not at all."""


class Schema:
    """One operator that the bridge can call: an ATen overload, or one of a class derived from this in bridge/kernels.

    Nothing in that of an ATen overload changes once it is made.

    Args:
        name: the full name: of an ATen overload as in "add.Tensor", else with a namespace as in "ns::name.overload".
        text: the schema, for documentation and messages.
        arguments, results, result_names: what it takes, and the type and name of each result.
        torch_op: what computes the operator on PyTorch's tensors; on `meta` tensors it gives the results' shapes.
        shim: the name of its kernel in the library; None if it always runs in Python (bridge/primitive/in_pytorch.py).
        gradient: how PyTorch differentiates it.
        devices: those that there are kernels for: "CPU", "GPU".
        gradient_reason: if PyTorch cannot differentiate it: why.
        eager_because: if there is no shim and the schema does not say why: why.
        dispatched: whether PyTorch's dispatcher knows it.
        random: whether it draws from PyTorch's generator.
        facts: what PyTorch does not tell of it.
        backward: of the backward shim, if there is one, whether it uses the results, and which results autograd tracks.
    """

    def __init__(
        self,
        name: str,
        text: str,
        arguments: Sequence[Argument],
        results: Sequence[str],
        torch_op: Any,
        shim: str | None,
        gradient: GradientKind,
        *,
        devices: Sequence[str],
        result_names: Sequence[str | None] = (),
        gradient_reason: str = "",
        eager_because: str = "",
        dispatched: bool = True,
        random: bool = False,
        facts: frozenset[Fact] = frozenset(),
        backward: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.packet, _, _ = name.partition(".")
        self.text = text
        self.arguments = list(arguments)
        self.results = list(results)
        self.result_names = list(result_names)
        self.torch_op = torch_op
        self.shim = shim
        self.gradient = gradient
        self.devices = list(devices)
        self.gradient_reason = gradient_reason
        self.eager_because = eager_because
        self.dispatched = dispatched
        self.random = random
        self.facts = facts
        self.backward = backward

    @property
    def is_aten(self) -> bool:
        return "::" not in self.name

    @property
    def positional(self) -> list[Argument]:
        return [a for a in self.arguments if not a.keyword_only]

    @property
    def differentiable(self) -> bool:
        return self.gradient in (GradientKind.FORMULA, GradientKind.COMPOSITE)

    @property
    def gives_tensors(self) -> bool:
        """Whether its results are tensors and lists of tensors, and nothing else."""
        return bool(self.results) and set(self.results) <= {"Tensor", "List[Tensor]"}

    @property
    def redraws(self) -> bool:
        """Whether the gradient has to draw again what the call drew: the kernel then also gives the generator's
        state."""
        return self.random and self.differentiable and self.shim is not None

    @property
    def nested(self) -> bool:
        """Whether a primitive's flat results have to be brought into another form (bridge/call/results.py)."""
        lists = "List[Tensor]" in self.results and len(self.results) > 1
        return self.redraws or lists or self.output_mask is not None or Fact.LEAVES_OUT_RESULTS in self.facts

    @property
    def output_mask(self) -> int | None:
        """The position of the bool[N] argument that says which of the N results are wanted."""
        for i, argument in enumerate(self.arguments):
            if argument.base == "bool" and argument.is_list and argument.size == len(self.results):
                return i
        return None

    # What bridge/primitive/kernel.py asks for. Kernels that are not ATen's answer otherwise.

    def function(self, device: str) -> str:
        """Where the kernel for one of `devices` is, as "library.so:symbol"."""
        return f"{SHIMS[device]}:aten_{self.shim}"

    @property
    def single(self) -> bool:
        """Whether the kernel has one tensor as its result rather than a tuple."""
        return self.results == ["Tensor"] and not self.redraws

    def kernel_text(self, text: Text) -> str:
        """The argument text that the kernel reads, for that of the operator."""
        return text

    def operator_text(self, kernel_text: str) -> str:
        """The reverse of `kernel_text`."""
        return kernel_text

    def attributes(self, text: Text) -> dict[str, Any]:
        """More attributes of the primitive."""
        return {}

    @property
    def reads_attributes(self) -> bool:
        """Whether the kernel may ask MindSpore for more than `attributes`."""
        return False

    @property
    def takes_variables(self) -> bool:
        """Whether a gradient line that calls the kernel also passes the arguments that it gives the gradients of."""
        return False

    def bprop(self, text: Text, device: str) -> Any:
        """What differentiates the kernel, called with inputs, results and their gradients; None: as ATen's are."""
        return None


def label(name: str) -> str:
    """What errors call an operator."""
    return name if "::" in name else f"aten.{name}"


def no_gradient(op: Schema) -> RuntimeError:
    """The error where a call that PyTorch cannot differentiate is differentiated."""
    return RuntimeError(f"{label(op.name)} has no gradient: {op.gradient_reason or 'declare one with gradient='}")


_declared: dict[str, Schema] = {}


def declare(op: Schema) -> None:
    """Make an operator that is not ATen's known by its name."""
    _declared[op.name] = op


def is_declared(name: str) -> bool:
    return name in _declared


def unused_name(name: str) -> str:
    """The name itself, or with a number that makes it another: "custom::f#2"."""
    numbered = (f"{name}#{count}" for count in itertools.count(2))
    return name if not is_declared(name) else next(other for other in numbered if not is_declared(other))


@functools.cache
def _aten(name: str) -> Schema:
    row = table()[name]
    packet, _, overload = name.partition(".")
    torch_op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return Schema(
        name,
        row["schema"],
        *parts(torch_op._schema),
        torch_op,
        row["shim"],
        GradientKind(row["gradient"]),
        devices=row["devices"],
        result_names=[result.name for result in torch_op._schema.returns],
        gradient_reason=row.get("gradient_reason", ""),
        random=row["random"],
        facts=facts(name),
        backward=None if row["random"] else row.get("backward"),
    )


def schema(name: str) -> Schema:
    """The schema of a callable operator by its full name, as in "add.Tensor".

    Raises LookupError if it is not ATen's, and this process has not declared it (a pickle comes from another).
    """
    if "::" not in name:
        return _aten(name)
    if name not in _declared:
        raise LookupError(f"{name} is not declared in this process: call bridge.kernels for it first")
    return _declared[name]
