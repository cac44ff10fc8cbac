"""Functions, classes and lists of PyTorch's that are others while a program runs.

They are replaced where PyTorch's Python finds them. A mode of PyTorch's would see them too, but some of its layers
choose other kernels under such a mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_ABSENT = object()  # of a class that inherits it, or a module that finds it elsewhere


@dataclass(frozen=True)
class Replacement:
    """`stand_in` stands for `holder.name`."""

    holder: Any
    name: str
    stand_in: Any


class replaced:  # lower case: it is called as a function; a generator's context manager takes twice its time
    """Inside, these stand in the place of PyTorch's."""

    def __init__(self, replacements: Sequence[Replacement]) -> None:
        self._replacements = replacements

    def __enter__(self) -> None:
        self._before = [vars(each.holder).get(each.name, _ABSENT) for each in self._replacements]
        for each in self._replacements:
            setattr(each.holder, each.name, each.stand_in)

    def __exit__(self, *_: Any) -> None:
        for each, own in zip(self._replacements, self._before, strict=True):
            if own is _ABSENT:
                delattr(each.holder, each.name)
            else:
                setattr(each.holder, each.name, own)
