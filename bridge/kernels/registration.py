"""Operators that are registered with PyTorch, as operators of the bridge."""
from __future__ import annotations

from typing import Any

import torch

from bridge import devices
from bridge.gradient import Level, op_inputs
from bridge.gradient import parse as parse_level
from bridge.kernels import gradient_line
from bridge.kernels.bprops import GradientDeclaration, LineGradient, NoGradient, PythonGradient
from bridge.kernels.declaration import Declaration, Output
from bridge.kernels.gradient_line import Line, aten_names
from bridge.kernels.sources import DEVICES, Sources, device_library, paths
from bridge.kernels.toolchain import Flags
from bridge.operator import Operator
from bridge.schema import SHARED, Schema, declare, unused_name


class Registered(Schema):
    """An operator that somebody registered with PyTorch.

    Its kernel is `ms_ext/gradient.cpp` at level 0, a call through PyTorch's dispatcher.

    Args:
        name: the full name, as in "ns::name.overload".
        torch_op: torch.ops.ns.name.overload.
        gradient: a Python function or a line, which replaces its registered autograd.
    """

    def __init__(self, name: str, torch_op: Any, gradient: GradientDeclaration) -> None:
        raw = torch_op._schema
        self.torch_name = torch_op.name()
        has_meta = _has_kernel(torch_op, "Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
        has_autograd = _has_kernel(
            torch_op, "Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd"
        )
        if gradient is not None and not has_meta:
            raise ValueError(f"{name} needs a meta function for gradient=; torch.library.register_fake gives it one")
        # Not a composite, whatever its kernel is, if it has a gradient of the user's: PyTorch's would replace that.
        differentiated = "formula" if gradient is not None else "composite" if has_autograd else "none"
        super().__init__(name, str(raw), raw, torch_op, "gradient" if has_meta else None, differentiated)
        composite = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
        self.devices = [name for name, key in DEVICES.items() if _has_kernel(torch_op, key, *composite)]
        self.eager_because = "" if has_meta else "it has no meta function, which torch.library.register_fake gives it"
        self._line: Line | None = None
        self._gradient = gradient
        if isinstance(gradient, str):
            self._line = gradient_line.parse(gradient, self.declaration)

    @property
    def declaration(self) -> Declaration:
        """What a gradient line may name."""
        outputs = tuple(
            Output(r.name or f"result{i}", "returned", None) for i, r in enumerate(self.torch_op._schema.returns)
        )
        return Declaration(self.text, self.packet, tuple(self.arguments), (), outputs, tuple(self.results))

    def function(self, device: str) -> str:
        return f"{SHARED[device]}:aten_gradient"

    @property
    def single(self) -> bool:
        return False

    @property
    def nested(self) -> bool:
        return True

    @property
    def may_depend_on_data(self) -> bool:
        """Whether it can run without its meta function."""
        return self.shim is not None and self._gradient is None

    def kernel_text(self, text: str) -> str:
        return Level(self.torch_name, text, 0, ()).kernel_text(op_inputs(text))

    def operator_text(self, kernel_text: str) -> str:
        return parse_level(kernel_text).text

    def bprop(self, text: str, device: str) -> Any:
        if self._line is not None:
            return LineGradient(self.name, text, device, self.declaration, self._line, _callable_names)
        if callable(self._gradient):
            return PythonGradient(self.name, text, self.declaration, self._gradient)
        return NoGradient(self.name) if self.gradient == "none" else None


def _has_kernel(torch_op: Any, *keys: str) -> bool:
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(torch_op.name(), key) for key in keys)


# The declared names of overloads with the gradients that they were registered with.
_with_own_gradient: dict[str, str] = {}


def _packet(name: str) -> Any:
    """torch.ops.ns.name for "ns::name" or "ns::name.overload"; None if nobody has registered it."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    found = getattr(getattr(torch.ops, namespace), packet, None) if rest else None
    return None if found is None or (overload and overload not in found.overloads()) else found


def load_registration(name: str, sources: Sources, cuda: Sources, flags: dict[str, Flags]) -> None:
    """Compile and load what registers an operator. Nothing happens if there are no sources.

    Raises KernelError if that cannot be done, or if the operator is registered already by something else: PyTorch does
    not replace operators.
    """
    for_cuda = paths(cuda)
    device = DEVICES[devices.target()]
    files = paths(sources) + (for_cuda if device == "CUDA" else ())
    if files:
        device_library(device, files, flags[device], elsewhere=device == "CPU" and bool(for_cuda)).load()


def registered_names(name: str, gradient: GradientDeclaration = None) -> list[str]:
    """Declare the overloads of a registered operator, "ns::name" or "ns::name.overload"; returns their full names.

    Raises ValueError if nobody has registered it, or if it writes to its arguments.
    """
    packet = _packet(name)
    if packet is None:
        raise ValueError(
            f"nobody has registered an operator {name!r} with PyTorch: load the library or import the package that "
            "does, or give its sources"
        )
    found = []
    refused = ""
    base, _, overload = name.partition(".")
    overloads = [getattr(packet, each) for each in ([overload] if overload else packet.overloads())]
    # A 0-d tensor can be read as a number, but that has no gradient: overloads for tensors are tried first.
    for torch_op in sorted(overloads, key=_tensor_arguments, reverse=True):
        each = torch_op._overloadname
        full = base if each == "default" else f"{base}.{each}"
        written = [a.name for a in torch_op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if written:
            refused = (
                f"{full} writes to its argument {written[0]!r}, which MindSpore does not allow: register an operator "
                "that returns its result"
            )
            continue
        declared = _with_own_gradient.get(full) if gradient is None else None
        if declared is None:
            # With another gradient it is another operator: MindSpore keeps primitives by their names.
            declared = unused_name(full)
            declare(Registered(declared, torch_op, gradient))
            if gradient is None:
                _with_own_gradient[full] = declared
        found.append(declared)
    if not found:
        raise ValueError(refused)
    return found


def _tensor_arguments(torch_op: Any) -> int:
    return sum("Tensor" in str(argument.type) for argument in torch_op._schema.arguments)


def _callable_names(function: str) -> list[str]:
    """What a gradient line of a registered operator may call: others, and ATen's."""
    if "::" not in function:
        return aten_names(function)
    return registered_names(function)


class RegisteredOperator(Operator):
    """An operator registered with PyTorch, as a MindSpore operator."""

    def _call_unplanned(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, tensors: list[Any]) -> Any:
        try:
            return super()._call_unplanned(args, kwargs, key, tensors)
        except RuntimeError as error:
            # What a meta function that torch.library.register_fake gave says when it cannot know a size.
            ours = [op for op in self.schemas if isinstance(op, Registered) and op.may_depend_on_data]
            if "data-dependent shape" not in str(error) or not ours:
                raise
        for op in ours:
            op.shim = None
        self._plans.clear()
        return super()._call_unplanned(args, kwargs, key, tensors)
