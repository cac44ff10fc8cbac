"""Operators that `torch.autocast` casts for inside: they have no casts of their own, and call others that have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bridge.programs.calls import Refusal
from bridge.programs.replaced import Replacement

_BOTH = ("cpu", "cuda")
# The kernels by which they call others; None for those that a tape does not see. And where: for a GPU, autocast has
# casts of its own for torch.bilinear, which calls `_trilinear`.
_KERNELS = {
    torch.ops.aten._trilinear.default: (torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional, ("cpu",)),
    torch.ops.aten.affine_grid_generator.default: (torch._C.DispatchKey.CompositeExplicitAutograd, _BOTH),
    torch.ops.aten._transformer_encoder_layer_fwd.default: (None, _BOTH),
    torch.ops.aten._native_multi_head_attention.default: (None, _BOTH),
}


class InnerCasts:
    """Whether the code that is captured runs under autocast. PyTorch does not say so while it calls a tape.

    Args:
        tape: records what is called.
    """

    def __init__(self, tape: Any) -> None:
        self._tape = tape
        self._is_on = {kind: torch.is_autocast_enabled(kind) for kind in _BOTH}

    def replacements(self) -> list[Replacement]:
        set_enabled: Callable[..., None] = torch.set_autocast_enabled

        def note(*args: Any) -> None:
            set_enabled(*args)
            self._is_on = {kind: torch.is_autocast_enabled(kind) for kind in self._is_on}

        return [Replacement(torch, "set_autocast_enabled", note)]

    def has(self, func: Any, args: Any) -> bool:
        """Whether this call casts inside."""
        if func not in _KERNELS:
            return False
        kind = args[0].device.type
        return kind in _KERNELS[func][1] and self._is_on[kind]

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Have the tape record what the operator calls."""
        key, _ = _KERNELS[func]
        if key is None:
            raise Refusal(
                f"{func.name()} casts inside under torch.autocast, which a graph does not: call "
                "torch.backends.mha.set_fastpath_enabled(False), or use PyNative mode"
            )
        kind, before = args[0].device.type, self._is_on
        try:
            with self._tape, torch.autocast(kind, torch.get_autocast_dtype(kind)):
                return func._op_dk(key, *args, **kwargs)
        finally:
            self._is_on = before
