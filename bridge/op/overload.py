"""What the bridge can call: an overload of ATen's, or one that bridge/kernels declares."""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import torch

from bridge.op.encoding import Text
from bridge.op.schema import Schema, label, parsed
from bridge.op.table import SHIMS, Device, Fact, facts, table


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


class Overload:
    """A schema and what implements it: what runs, what infers, what differentiates. Nothing in it changes.

    The attributes and methods say how the other packages call it; ATen's and those of bridge/kernels derive from it.

    Attributes:
        schema: what it takes and gives.
        torch_op: what computes it on PyTorch's tensors; on `meta` tensors it gives the results' shapes.
        devices: MindSpore's devices that there are kernels for.
        gradient: how PyTorch differentiates it.
        gradient_reason: if PyTorch cannot differentiate it: why.
        eager_because: if it has no kernel and the schema does not say why: why.
        not_in_programs: if it cannot be part of a program (bridge/programs/fuse.py): why.
        dispatched: whether PyTorch's dispatcher knows it.
        random: whether it draws from PyTorch's generator.
        facts: what PyTorch does not tell of it.
        backward: of its backward kernel, if there is one: whether it uses the results, and which results autograd
            tracks.
    """

    gradient_reason: str = ""
    eager_because: str = ""
    not_in_programs: str = ""
    dispatched: bool = True
    random: bool = False
    facts: frozenset[Fact] = frozenset()
    backward: dict[str, Any] | None = None

    def __init__(self, schema: Schema, torch_op: Any, devices: Sequence[Device], gradient: GradientKind) -> None:
        self.schema = schema
        self.name = schema.name
        self.torch_op = torch_op
        self.devices = tuple(devices)
        self.gradient = gradient

    @property
    def differentiable(self) -> bool:
        return self.gradient in (GradientKind.FORMULA, GradientKind.COMPOSITE)

    @property
    def redraws(self) -> bool:
        """Whether the gradient has to draw again what the call drew: the kernel then also gives the generator's
        state."""
        return self.random and self.differentiable and self.has_kernel

    @property
    def nested(self) -> bool:
        """Whether a primitive's flat results have to be brought into another form (bridge/call/results.py)."""
        results = self.schema.results
        lists = "List[Tensor]" in results and len(results) > 1
        return self.redraws or lists or self.schema.output_mask is not None or Fact.LEAVES_OUT_RESULTS in self.facts

    # What bridge/primitive/kernel.py asks for.

    @property
    def has_kernel(self) -> bool:
        """Whether MindSpore can run it; if not, it runs in Python (bridge/primitive/in_pytorch.py)."""
        raise NotImplementedError

    def function(self, device: Device) -> str:
        """Where the kernel for one of `devices` is, as "library.so:symbol"."""
        raise NotImplementedError

    @property
    def single(self) -> bool:
        """Whether the kernel has one tensor as its result rather than a tuple."""
        return self.schema.results == ("Tensor",) and not self.redraws

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

    def bprop(self, text: Text, device: Device) -> Any:
        """What differentiates the kernel, called with inputs, results and their gradients; None: as ATen's are."""
        return None


class ATenOverload(Overload):
    """An overload of ATen's, as the generated table has it.

    Args:
        name: the full name, as in "add.Tensor".
    """

    def __init__(self, name: str) -> None:
        row = table()[name]
        packet, _, overload = name.partition(".")
        torch_op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        raw = parsed(name, torch_op._schema)
        super().__init__(
            dataclasses.replace(raw, text=row["schema"]),
            torch_op,
            row["devices"],
            GradientKind(row["gradient"]),
        )
        self.gradient_reason = row.get("gradient_reason", "")
        self.random = row["random"]
        self.facts = facts(name)
        self.backward = None if row["random"] else row.get("backward")
        self.shim: str | None = row["shim"]

    @property
    def has_kernel(self) -> bool:
        return self.shim is not None

    def function(self, device: Device) -> str:
        return f"{SHIMS[device]}:aten_{self.shim}"

    def derivative(self, device: Device) -> str:
        """Where the backward kernel is, as "library.so:symbol"."""
        return f"{self.function(device)}_derivative"


def no_gradient(op: Overload) -> RuntimeError:
    """The error where a call that PyTorch cannot differentiate is differentiated."""
    return RuntimeError(f"{label(op.name)} has no gradient: {op.gradient_reason or 'declare one with gradient='}")


_declared: dict[str, Overload] = {}


def declare(op: Overload) -> None:
    """Make an operator that is not ATen's known by its name."""
    _declared[op.name] = op


def is_declared(name: str) -> bool:
    return name in _declared


def unused_name(name: str) -> str:
    """The name itself, or with a number that makes it another: "custom::f#2"."""
    numbered = (f"{name}#{count}" for count in itertools.count(2))
    return name if not is_declared(name) else next(other for other in numbered if not is_declared(other))


_aten = functools.cache(ATenOverload)


def overload(name: str) -> Overload:
    """What can be called under a full name, as "add.Tensor".

    Raises LookupError if it is not ATen's, and this process has not declared it (a pickle comes from another).
    """
    if "::" not in name:
        return _aten(name)
    if name not in _declared:
        raise LookupError(f"{name} is not declared in this process: call bridge.kernels for it first")
    return _declared[name]
