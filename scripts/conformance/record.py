"""Records the ATen calls that a program makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .calls import Call, describe, functional_name, map_tensors


def snapshot(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy. MindSpore hands contiguous tensors to custom operators, so PyTorch gets the same."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return tensor
    with torch.inference_mode(False), torch.no_grad():
        return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


class Recorder(TorchDispatchMode):
    """Collects the distinct ATen calls made under it.

    Autograd decomposes composite operators before a dispatch mode sees them, except in inference mode. There they
    arrive whole, and are decomposed here under the same mode so that what they are made of is recorded too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.without_functional: Counter[str] = Counter()
        self.source = ""
        self._fresh: list[Call] = []

    def drain(self) -> list[Call]:
        """The calls that are new since the last time."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def record(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        name = functional_name(op)
        if name is None:
            self.without_functional[op.name().removeprefix("aten::")] += 1
            return
        if op._schema.is_mutable:
            writable = {a.name for a in op._schema.arguments if a.is_write and a.kwarg_only}
            kwargs = {k: v for k, v in kwargs.items() if k not in writable}
        key = f"{name}({describe(args)}; {describe(kwargs)})"
        if key in self.seen:
            return
        self.seen.add(key)
        copies = map_tensors(tuple(args), snapshot), {k: map_tensors(v, snapshot) for k, v in kwargs.items()}
        self._fresh.append(Call(name, *copies, source=self.source, key=key))

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "aten":
            self.record(func, args, kwargs)
        # Only inference mode lets composites through whole; on the autograd path there is nothing to decompose.
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
        if composite and torch.is_inference_mode_enabled():
            with self:
                return func.decompose(*args, **kwargs)
        return func(*args, **kwargs)
