"""PyTorch's autocast around what is captured."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import torch


class Casting(NamedTuple):
    """What `torch.autocast` casts to, and whether it casts each weight once.

    Args:
        to: the dtype; None if it is off.
        caches: its `cache_enabled`.
    """

    to: torch.dtype | None
    caches: bool

    @classmethod
    def now(cls, kind: str) -> Casting:
        """What holds now, on this thread, for a kind of devices."""
        to = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        return cls(to, torch.is_autocast_cache_enabled())

    def around(self, kind: str) -> Any:
        """A context in which it holds, also on another thread."""
        return contextlib.nullcontext() if self.to is None else torch.autocast(kind, self.to, cache_enabled=self.caches)
