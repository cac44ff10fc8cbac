"""A recorded call, and what is known of its overload without running it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from bridge.op.table import Fact, with_fact

SEED = 0

# torch.manual_seed queues a call, with a stack trace, for each kind of device that is not there: a millisecond.
seed_torch = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed

# Only the shape and dtype of their results mean anything.
UNINITIALISED = with_fact(Fact.UNINITIALISED)


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of one overload, with its own contiguous copies of the tensors."""

    overload: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    source: str
    key: str

    @property
    def op(self) -> torch._ops.OpOverload:
        return overload_named(self.overload)

    def with_tensors(self, convert: Callable[[torch.Tensor], Any]) -> Call:
        """The same call of converted tensors, which are converted in their order."""
        args = map_tensors(self.args, convert)
        return dataclasses.replace(self, args=args, kwargs={k: map_tensors(v, convert) for k, v in self.kwargs.items()})

    def tensors(self) -> Iterator[torch.Tensor]:
        return tensors_in([self.args, self.kwargs])


@functools.cache
def overload_named(name: str) -> torch._ops.OpOverload:
    """The operator for "add.Tensor" or, when the overload has no name, "relu"."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


@functools.cache
def functional_name(op: torch._ops.OpOverload) -> str | None:
    """The functional overload that makes the same call: itself, or the counterpart of an in-place or out overload."""
    name = op.name().removeprefix("aten::")
    if not op._schema.is_mutable:
        return name
    packet = name.partition(".")[0]
    candidates = [f"__{packet[3:]}"] if packet.startswith("__i") else [packet.removesuffix("_"), packet]
    kept = [(a.name, str(a.type)) for a in op._schema.arguments if not (a.is_write and a.kwarg_only)]
    for candidate in candidates:
        for other in torch._C._jit_get_schemas_for_operator(f"aten::{candidate}"):
            other_name = f"{candidate}.{other.overload_name}" if other.overload_name else candidate
            if other.is_mutable or not torch._C._dispatch_has_kernel(f"aten::{other_name}"):
                continue
            if [(a.name, str(a.type)) for a in other.arguments] == kept:
                return other_name
    return None


def has_cpu_kernel(name: str) -> bool:
    return torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"aten::{name}", "CPU")


@functools.cache
def functional_overloads() -> tuple[str, ...]:
    """Every functional ATen overload that the installed PyTorch declares and runs on CPU."""
    import torchgen  # slow to import, and only whole sweeps ask
    from torchgen.gen import parse_native_yaml
    from torchgen.model import SchemaKind

    native = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    declared = parse_native_yaml(str(native / "native_functions.yaml"), str(native / "tags.yaml")).native_functions
    names = (str(f.func.name) for f in declared if f.func.kind() == SchemaKind.functional)
    return tuple(sorted(name for name in names if has_cpu_kernel(name)))


def map_tensors(value: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
    """The same nested lists and tuples with every tensor converted."""
    if isinstance(value, torch.Tensor):
        return convert(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(v, convert) for v in value) if type(value) in (list, tuple) else list(value)
    return value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(tensors_in, value.values()))
    elif isinstance(value, (list, tuple)):
        yield from itertools.chain.from_iterable(map(tensors_in, value))


def describe(value: Any) -> str:
    """A text that is equal for calls that differ only in the tensors' contents, and the same in every process."""
    if isinstance(value, torch.Tensor):
        layout = "" if value.layout == torch.strided else f" {value.layout}"
        return f"{value.dtype}{list(value.shape)}{layout}".removeprefix("torch.")
    if isinstance(value, dict):
        return ", ".join(f"{k}={describe(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(describe, value))}]"
    return repr(value) if isinstance(value, (bool, int, float, complex, str, type(None))) else str(value)
