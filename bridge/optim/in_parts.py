"""A step of an optimizer in parts, for the memory of what it computes on its way.

PyTorch's optimizers call one kernel for all parameters on a GPU, one operation after another. So each intermediate
result, as the square roots in Adam, is as large as all parameters together. Here they are called for some parameters
after another: with the same operations on each element, and so the same bits.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from bridge.programs.replaced import Replacement, replaced

DEVICES = {"cuda"}
PARTS = 4  # about: a large parameter is never divided. More kernels take longer
SMALLEST = 1 << 24  # bytes of parameters, below which a launch takes as long as its work

_NAME = "_group_tensors_by_device_and_dtype"
_groups = getattr(Optimizer, _NAME)
_one_thread = threading.RLock()


class _Key(tuple[Any, ...]):
    """A device and a dtype, of one part."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


@contextlib.contextmanager
def in_parts() -> Iterator[None]:
    """Inside, PyTorch's optimizers take their steps so. A thread that takes one meanwhile takes it in one part: it must
    not wait, because this one may wait for it."""
    if not _one_thread.acquire(blocking=False):
        yield
        return
    try:
        with replaced([Replacement(Optimizer, _NAME, _groups_in_parts)]):
            yield
    finally:
        _one_thread.release()


def _groups_in_parts(lists: list[list[Any]], with_indices: bool = False) -> dict[Any, Any]:
    """What PyTorch's has for a group, for each part of it."""
    found: dict[Any, Any] = {}
    for key, (own, indices) in _groups(lists, with_indices).items():
        for begin, end in itertools.pairwise(_bounds(own)):
            found[_Key(key)] = [values[begin:end] for values in own], indices[begin:end]
    return found


def _bounds(lists: Sequence[Sequence[Any]]) -> list[int]:
    """Where parts begin, and where the last one ends."""
    parameters = lists[0]
    sizes = [parameter.nbytes for parameter in parameters]
    size = max(SMALLEST, sum(sizes) // PARTS)
    if parameters[0].device.type not in DEVICES or sum(sizes) < 2 * size or not _are_alike(lists):
        return [0, len(parameters)]
    bounds, part = [0], 0  # bytes of the part that is being filled
    for i, own in enumerate(sizes):
        if part and part + own > size:
            bounds.append(i)
            part = 0
        part += own
    return [*bounds, len(parameters)]


def _are_alike(lists: Sequence[Sequence[Any]]) -> bool:
    """Whether each parameter lies in memory as its gradient and its state do. If one does not, PyTorch computes all of
    them one by one, by other kernels."""
    for position, parameter in enumerate(lists[0]):
        if not parameter.is_contiguous() and not parameter.is_contiguous(memory_format=torch.channels_last):
            return False
        for values in lists[1:]:
            value = values[position] if values else None
            if isinstance(value, torch.Tensor) and value.dim() and value.stride() != parameter.stride():
                return False
    return True
