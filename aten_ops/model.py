"""Which ATen overloads get a shim, and which call each shim makes.

The source is `torchgen`'s model of the installed PyTorch; nothing here parses C++ headers.
"""
from __future__ import annotations

import functools
import pathlib
import re
from dataclasses import dataclass, field

import torch
import torchgen
import yaml
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

HERE = pathlib.Path(__file__).parent

# Their out= variants do not do what the functional call does, on a contiguous tensor of the right size.
OUT_VARIANT_DIFFERS = {
    # They resize or restride `out` on the way to the result.
    "mse_loss", "huber_loss", "smooth_l1_loss", "soft_margin_loss", "binary_cross_entropy", "max_unpool2d",
    # They add to what `out` held.
    "_compute_linear_combination",
    # They round differently, or give other values, than the functional call.
    "fft_ihfft2", "fft_ihfftn", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "linalg_lu_solve",
    "linalg_solve_triangular", "linear",
    # They want their out tensors otherwise than the functional call returns them.
    "empty",
    # On CUDA, their out= variants are those of the CPU, want inputs that are prepared, or transform in another way.
    "range", "_stack", "_fft_r2c", "fft_fft", "fft_ifft",
}  # fmt: skip

# The shapes of their results follow from the values of their inputs, although PyTorch does not tag them so.
SHAPE_FROM_DATA = {
    "where", "_unique", "tensor_split.tensor_indices_or_sections", "_pack_padded_sequence", "_pad_packed_sequence",
    "_reshape_from_tensor", "_rowwise_prune", "nonzero_numpy",
}  # fmt: skip

# PyTorch tags them so, but in every call (_ctc_loss), or in those that bridge/data_dependent.py tells, the shapes of
# their results follow from what is given besides.
SHAPE_FROM_ARGUMENTS = {
    "_ctc_loss", "index.Tensor", "linalg_lstsq", "one_hot", "repeat_interleave.Tensor",
    "repeat_interleave.self_Tensor",
}  # fmt: skip

# Functional by their schemas, but they write to the running statistics that they are given.
WRITES_ARGUMENTS = {
    "batch_norm", "native_batch_norm", "_batch_norm_impl_index", "cudnn_batch_norm", "batch_norm_update_stats",
    "instance_norm",
}

# Registered for every device, but they read and write tensors on the host: all of them, or one (`batch_sizes`,
# `lengths`, `scalars`, `high`), where a MindSpore tensor is on the GPU like the others.
HOST_CODE = {
    "_foreach_addcdiv.Tensor", "_foreach_addcmul.Tensor", "_pack_padded_sequence", "_pack_padded_sequence_backward",
    "_pad_packed_sequence", "gru.data", "lstm.data", "rnn_relu.data", "rnn_tanh.data",
    "randint_like.Tensor_generator", "tensor_split.tensor_indices_or_sections",
    "_autocast_to_reduced_precision", "_grid_sampler_2d_cpu_fallback", "_grid_sampler_2d_cpu_fallback_backward",
    "_reshape_from_tensor", "_rowwise_prune", "_saturate_weight_to_fp16", "_sobol_engine_draw", "_to_cpu",
    "fbgemm_linear_fp16_weight", "fbgemm_linear_fp16_weight_fp32_activation", "fbgemm_linear_int8_weight",
    "fbgemm_linear_int8_weight_fp32_activation", "fbgemm_linear_quantize_weight", "fbgemm_pack_gemm_matrix_fp16",
    "fbgemm_pack_quantized_matrix", "fbgemm_pack_quantized_matrix.KN", "_wrapped_linear_prepack",
    "_wrapped_quantized_linear_prepacked",
}  # fmt: skip


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


def base_types(type_: Type) -> set[BaseTy]:
    if isinstance(type_, BaseType):
        return {type_.name}
    if isinstance(type_, (ListType, OptionalType)):
        return base_types(type_.elem)
    raise TypeError(f"torchgen has a new kind of type: {type_!r}")


class Skips:
    """The rules of skips.yaml."""

    def __init__(self, path: pathlib.Path = HERE / "skips.yaml") -> None:
        rules = yaml.safe_load(path.read_text())
        self.types: dict[str, str] = rules["types"]
        self.names = [(re.compile(rule["match"]), rule["reason"]) for rule in rules["names"]]
        self.unused = {pattern.pattern for pattern, _ in self.names}

    def reason(self, function: NativeFunction) -> str:
        schema = function.func
        for item in [*schema.arguments.flat_all, *schema.returns]:
            for type_ in base_types(item.type):
                if type_.name in self.types:
                    return self.types[type_.name]
        for pattern, reason in self.names:
            if pattern.fullmatch(str(schema.name)):
                self.unused.discard(pattern.pattern)
                return reason
        return ""


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
    if function.func.name.name.base in OUT_VARIANT_DIFFERS or _has_optional_results(function):
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
    name = str(function.func.name)
    tagged = "dynamic_output_shape" in function.tags and name not in SHAPE_FROM_ARGUMENTS
    return tagged or name in SHAPE_FROM_DATA


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
        operator = Operator(function, skips.reason(function), tags=set(function.tags))
        if not operator.reason and key == "CUDA" and operator.name in HOST_CODE:
            operator.reason = "it reads or writes tensors on the host, whatever the device"
        if not operator.reason and not has_kernel(function, key):
            operator.reason = f"PyTorch has no {key} kernel for it"
        if not operator.reason:
            operator.target = _target(function, key)
        found.append(operator)
    for pattern in sorted(skips.unused):
        print(f"skips.yaml: nothing matches {pattern}")
    return sorted(found, key=lambda op: op.name)
