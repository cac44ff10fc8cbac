"""Which ATen overloads get a shim, and which call each shim makes.

The source is `torchgen`'s model of the installed PyTorch; nothing here parses C++ headers.
"""

from __future__ import annotations

import functools
import pathlib
from dataclasses import dataclass, field

import torch
import torchgen
from torchgen.api.autograd import DifferentiabilityInfo, match_differentiability_info
from torchgen.gen import ParsedYaml, parse_native_yaml
from torchgen.model import (
    BaseTy,
    BaseType,
    DispatchKey,
    FunctionSchema,
    ListType,
    NativeFunction,
    OptionalType,
    SchemaKind,
    Type,
)
from torchgen.packaged.autograd.gen_variable_type import DONT_REQUIRE_DERIVATIVE
from torchgen.packaged.autograd.load_derivatives import load_derivatives

from .facts import PATH, Fact, Skips, facts, stale


@dataclass
class Operator:
    """One functional ATen overload."""

    function: NativeFunction
    reason: str = ""
    """Why it is left out; empty if it is callable."""
    target: NativeFunction | None = None
    """The function that the shim calls: an out= variant, the function itself, or none if Python calls it eagerly."""
    tags: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        """ATen's name with the overload, as in "add.Tensor"."""
        return str(self.function.func.name)

    @property
    def symbol(self) -> str:
        return self.function.func.name.unambiguous_name()

    @property
    def writes_out(self) -> bool:
        return self.target is not None and self.target.func.kind() == SchemaKind.out

    @property
    def random(self) -> bool:
        return "nondeterministic_seeded" in self.tags

    @property
    def gradient(self) -> str:
        """How PyTorch differentiates it: through its parts ("composite"), by a "formula" of its own, not at all because
        its results are a "constant" to autograd, or "none"."""
        schema = self.function.func
        if not any(result.type.is_tensor_like() for result in schema.returns):
            return "none"
        if self.function.has_composite_implicit_autograd_kernel:  # a formula is then for nested tensors alone
            return "composite"
        if schema in derivatives():
            return "formula"
        base = schema.name.name.base
        info = derivative_entries().get(schema)
        untracked = info is not None and info.output_differentiability and not any(info.output_differentiability)
        if untracked or base in DONT_REQUIRE_DERIVATIVE or base in ("detach", "detach_copy"):
            return "constant"
        return "none"

    @property
    def differentiable(self) -> bool:
        """Whether PyTorch can differentiate it."""
        return self.gradient in ("formula", "composite")

    @property
    def reason_against_gradient(self) -> str:
        """Why it has no gradient; empty if it has one."""
        schema = self.function.func
        if self.differentiable:
            return ""
        if not any(result.type.is_tensor_like() for result in schema.returns):
            return "its results are no tensors"
        if not any(argument.type.is_tensor_like() for argument in schema.arguments.flat_all):
            return "it takes no tensors"
        if self.gradient == "constant":
            return "its results are constants to PyTorch's autograd: integers, masks, or filled with given values"
        if schema in derivative_entries():
            return "PyTorch declares its inputs not differentiable"
        return "PyTorch has no derivative for it"

    @property
    def gives_one_tensor(self) -> bool:
        """Whether its kernel has a single output. A differentiated draw also gives the generator's state."""
        return self.results == ["Tensor"] and not (self.random and self.differentiable)

    @property
    def results(self) -> list[str]:
        """The type of each result: "Tensor", "Tensor[]", "int", ..."""
        return [str(result.type) for result in self.function.func.returns]


def _base_type_names(function: NativeFunction) -> list[str]:
    schema = function.func
    return [type_.name for item in [*schema.arguments.flat_all, *schema.returns] for type_ in base_types(item.type)]


def base_types(type_: Type) -> set[BaseTy]:
    if isinstance(type_, BaseType):
        return {type_.name}
    if isinstance(type_, (ListType, OptionalType)):
        return base_types(type_.elem)
    raise TypeError(f"torchgen has a new kind of type: {type_!r}")


def has_kernel(function: NativeFunction, key: str) -> bool:
    """Whether PyTorch runs the function on "CPU" or "CUDA".

    For CPU the installed PyTorch says so; for CUDA its declarations do, which are the same in a CPU build.
    """
    if key == "CPU":
        return torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"aten::{function.func.name}", key)
    kernels = _parsed().backend_indices[DispatchKey.parse(key)]
    return (
        function.has_composite_kernel
        or kernels.has_kernel(function)
        or (function.structured_delegate is not None and function.structured_delegate in kernels.index)
    )


@functools.cache
def _parsed() -> ParsedYaml:
    native = pathlib.Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    return parse_native_yaml(str(native / "native_functions.yaml"), str(native / "tags.yaml"))


@functools.cache
def native_functions() -> tuple[NativeFunction, ...]:
    """Every function of the installed PyTorch, the generated ones (out= and *_copy variants) included."""
    return tuple(_parsed().native_functions)


@functools.cache
def by_name() -> dict[str, NativeFunction]:
    return {str(f.func.name): f for f in native_functions()}


@functools.cache
def out_variants() -> dict[FunctionSchema, NativeFunction]:
    """The out= variant for the signature of a functional overload."""
    return {
        f.func.signature(): f
        for f in native_functions()
        if f.func.kind() == SchemaKind.out and not any(a.is_write for a in f.func.arguments.flat_non_out)
    }


@functools.cache
def derivative_entries() -> dict[FunctionSchema, DifferentiabilityInfo]:
    """What derivatives.yaml says of each overload that stands in it."""
    packaged = pathlib.Path(torchgen.__file__).parent / "packaged"
    infos, _ = load_derivatives(
        str(packaged / "autograd" / "derivatives.yaml"),
        str(packaged / "ATen" / "native" / "native_functions.yaml"),
        str(packaged / "ATen" / "native" / "tags.yaml"),
    )
    found = {}
    for matched in match_differentiability_info(list(native_functions()), infos):
        info = (matched.info or {}).get("Default")
        if info is not None:
            found[matched.func.func] = info
    return found


@functools.cache
def derivatives() -> dict[FunctionSchema, DifferentiabilityInfo]:
    """The formula of each overload that derivatives.yaml differentiates."""
    return {schema: info for schema, info in derivative_entries().items() if info.has_derivatives}


def _returns_only_tensors(function: NativeFunction) -> bool:
    kinds = {str(result.type) for result in function.func.returns}
    return bool(kinds) and kinds <= {"Tensor", "Tensor[]"}


def _target(function: NativeFunction, key: str) -> NativeFunction | None:
    """The cheapest call with the function's result: the kernel's own out= variant, or the functional call, whose result
    ms_ext/donation.h gets into MindSpore's memory."""
    if not _returns_only_tensors(function) or _has_shape_from_data(function):
        return None
    if Fact.OUT_DIFFERS in facts(str(function.func.name)) or _has_optional_results(function):
        return function
    if function.is_view_op:  # its *_copy variant is the one with an out= variant
        name = function.func.name
        function = by_name().get(f"{name.name}_copy{'.' if name.overload_name else ''}{name.overload_name}", function)
    out = out_variants().get(function.func.signature())
    if out is None or "generated" in out.tags:  # a generated one copies the functional call's result
        return function
    return out if has_kernel(out, key) else function


def _has_shape_from_data(function: NativeFunction) -> bool:
    """Whether the shapes of the results depend on the values of the inputs in every call."""
    known = facts(str(function.func.name))
    tagged = "dynamic_output_shape" in function.tags and Fact.SHAPE_FROM_ARGUMENTS not in known
    return tagged or Fact.SHAPE_FROM_DATA in known


def _has_optional_results(function: NativeFunction) -> bool:
    """Backward functions with an output_mask leave out the results that nobody asked for."""
    return any(str(a.type).startswith("bool[") for a in function.func.arguments.flat_all)


def operators(key: str) -> list[Operator]:
    """Every functional overload, for the dispatch key "CPU" or "CUDA", sorted by name."""
    skips = Skips()
    found = []
    for function in native_functions():
        if function.func.kind() != SchemaKind.functional:
            continue
        name = str(function.func.name)
        operator = Operator(function, skips.reason(name, _base_type_names(function)), tags=set(function.tags))
        if not operator.reason and key == "CUDA":
            operator.reason = facts(name).get(Fact.ON_HOST, "")
        if not operator.reason and not has_kernel(function, key):
            operator.reason = f"PyTorch has no {key} kernel for it"
        if not operator.reason:
            operator.target = _target(function, key)
        found.append(operator)
    refuse_stale(sorted(skips.unused) + stale(operator.name for operator in found))
    return sorted(found, key=lambda op: op.name)


def refuse_stale(entries: list[str]) -> None:
    """Look for entries of overloads.yaml that match nothing.

    Raises:
        ValueError: there are some.
    """
    if entries:
        raise ValueError(f"{PATH.name}: nothing in PyTorch {torch.__version__} matches {', '.join(entries)}")
