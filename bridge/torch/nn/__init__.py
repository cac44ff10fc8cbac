"""torch.nn as far as it is functions: `functional`. The layers are here too, from when bridge.nn is imported."""

from __future__ import annotations

from typing import Any

from bridge.torch import names
from bridge.torch.nn import functional

__all__ = ["functional"]


def __getattr__(name: str) -> Any:
    return names.missing("torch.nn", name, globals())
