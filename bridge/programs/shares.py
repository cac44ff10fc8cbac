"""Integers that data decides and that are shares of a whole: `x.split(counts.tolist())` takes them only if their sum is
a size of x. So have the integers that stand for them while a function is captured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bridge.programs.size_numbers import SizeNumber

Whole = tuple[tuple[SizeNumber, ...], int]
"""The numbers of the integers, and their sum."""

_SPLITS = {torch.ops.aten.split_with_sizes.default, torch.ops.aten.split_with_sizes_copy.default}


class NoShares(RuntimeError):
    """The function splits a tensor into shares that are not all of it.

    Attributes:
        whole: what would be.
    """

    def __init__(self, message: str, whole: Whole) -> None:
        super().__init__(message)
        self.whole = whole


def whole_of(func: Any, args: Sequence[Any], told: Mapping[SizeNumber, int]) -> Whole | None:
    """That of a call that splits a tensor into integers which the run was told one after the other, and into nothing
    else; else None.

    Args:
        args: its arguments.
        told: these integers, in their order.
    """
    if func not in _SPLITS or not args[1]:
        return None
    tensor, shares, dimension = args[0], tuple(args[1]), args[2] if len(args) > 2 else 0
    numbers, integers = [*told], [*told.values()]
    for end in range(len(integers), len(shares) - 1, -1):
        begin = end - len(shares)
        if tuple(integers[begin:end]) == shares:
            return tuple(numbers[begin:end]), tensor.shape[dimension]
    return None


def share(
    number: SizeNumber, wanted: int, wholes: Mapping[tuple[SizeNumber, ...], int], told: Mapping[SizeNumber, int]
) -> int:
    """What an integer is taken to be: the one that is wanted, if that is no share, or there is so much left.

    Args:
        wholes: by their shares.
        told: the integers before.
    """
    for numbers, whole in wholes.items():
        if number in numbers:
            place = numbers.index(number)
            before, after = [told[one] for one in numbers[:place]], [0] * (len(numbers) - place - 1)
            return shared([*before, wanted, *after], whole)[place]
    return wanted


def shared(integers: Sequence[int], whole: int) -> list[int]:
    """As many integers with this sum, which are these as long as there is so much left."""
    found: list[int] = []
    for integer in integers[:-1]:
        found.append(min(integer, whole - sum(found)))
    return [*found, whole - sum(found)]
