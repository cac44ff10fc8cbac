"""Makes operators of what is registered with PyTorch, by sources that are loaded for that or by others."""

from __future__ import annotations

from typing import Any

import torch

from bridge.call.arguments import resolve
from bridge.kernels.bprops import GradientDeclaration
from bridge.kernels.gradient_line import aten_names
from bridge.kernels.inference import Results
from bridge.kernels.registered import Registered, cannot_tell_shapes
from bridge.kernels.sources import Sources, device_library, paths
from bridge.kernels.toolchain import Flags
from bridge.op import devices
from bridge.op.overload import declare, unused_name
from bridge.op.table import Variant
from bridge.operator import Operator
from bridge.primitive import in_pytorch

# The declared names of overloads as they are registered.
_as_registered: dict[str, str] = {}


def _packet(name: str) -> Any:
    """torch.ops.ns.name for "ns::name" or "ns::name.overload"; None if nobody has registered it."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    found = getattr(getattr(torch.ops, namespace), packet, None) if rest else None
    return None if found is None or (overload and overload not in found.overloads()) else found


def load_registration(name: str, sources: Sources, cuda: Sources, flags: dict[Variant, Flags]) -> None:
    """Compile and load what registers an operator. Nothing happens if there are no sources.

    Raises KernelError if that cannot be done, or if an operator is registered already by something else: PyTorch does
    not replace operators.
    """
    for_cuda = paths(cuda)
    device: Variant = "CUDA" if devices.target() == "GPU" else "CPU"
    files = paths(sources) + (for_cuda if device == "CUDA" else ())
    if files:
        device_library(device, files, flags[device], elsewhere=device == "CPU" and bool(for_cuda)).load(name)


def registered_names(name: str, results: Results = None, gradient: GradientDeclaration = None) -> list[str]:
    """Declare the overloads of a registered operator, "ns::name" or "ns::name.overload"; returns their full names.

    Raises ValueError if nobody has registered it, or if it cannot be declared (bridge.kernels.registered.Registered).
    """
    packet = _packet(name)
    if packet is None:
        raise ValueError(
            f"nobody has registered an operator {name!r} with PyTorch: load the library or import the package that "
            "does, or give its sources"
        )
    found = []
    refused: list[ValueError] = []
    base, _, overload = name.partition(".")
    overloads = [getattr(packet, each) for each in ([overload] if overload else packet.overloads())]
    # A 0-d tensor can be read as a number, but that has no gradient: overloads for tensors are tried first.
    for torch_op in sorted(overloads, key=_tensor_arguments, reverse=True):
        each = torch_op._overloadname
        full = base if each == "default" else f"{base}.{each}"
        try:
            found.append(_declared_name(full, torch_op, results, gradient))
        except ValueError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return found


def _declared_name(full: str, torch_op: Any, results: Results, gradient: GradientDeclaration) -> str:
    """The name by which the overload is declared. With other results or another gradient it is another operator:
    MindSpore keeps primitives by their names."""
    as_registered = results is None and gradient is None
    if as_registered and full in _as_registered:
        return _as_registered[full]
    name = unused_name(full)
    declare(Registered(name, torch_op, results, gradient, _callable_names))
    if as_registered:
        _as_registered[full] = name
    return name


def _tensor_arguments(torch_op: Any) -> int:
    return sum("Tensor" in str(argument.type) for argument in torch_op._schema.arguments)


def _callable_names(function: str) -> list[str]:
    """What a gradient line of a registered operator may call: others, and ATen's."""
    return registered_names(function) if "::" in function else aten_names(function)


class RegisteredOperator(Operator):
    """An operator registered with PyTorch, as a MindSpore operator."""

    def _call_unplanned(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, tensors: list[Any]) -> Any:
        try:
            return super()._call_unplanned(args, kwargs, key, tensors)
        except RuntimeError as error:
            if not cannot_tell_shapes(error):
                raise
        self._plans.clear()
        bound = resolve(self.name, self.overloads, args, kwargs)
        return in_pytorch.call(bound, devices.place(bound.overload, self.wants_cpu))

    def plan_in_graph(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().plan_in_graph(*args, **kwargs)
        except RuntimeError as error:
            if not cannot_tell_shapes(error):
                raise
            raise RuntimeError(
                f"{self.name} works in PyNative mode only, unless results= tells its shapes: {error}"
            ) from None
