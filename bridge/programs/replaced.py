"""Functions of PyTorch's that are others while a program runs.

They are replaced where PyTorch's Python finds them. A mode of PyTorch's would see them too, but some of its layers
choose other kernels under such a mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Replacement:
    """`function` stands for `holder.name`."""

    holder: Any
    name: str
    function: Callable[..., Any]


@contextlib.contextmanager
def replaced(replacements: Sequence[Replacement]) -> Iterator[None]:
    """Inside, these functions stand in the place of PyTorch's."""
    before = [getattr(each.holder, each.name) for each in replacements]
    try:
        for each in replacements:
            setattr(each.holder, each.name, each.function)
        yield
    finally:
        for each, own in zip(replacements, before, strict=True):
            setattr(each.holder, each.name, own)
