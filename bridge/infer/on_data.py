"""What a call gives whose results' shapes depend on the data: what trials on several kinds of data have in common."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch

from bridge.call.torch_call import renamed
from bridge.infer.shapes import common
from bridge.infer.trial import Spec, results_of
from bridge.op import devices
from bridge.op.encoding import Text
from bridge.op.overload import Overload, overload
from bridge.op.table import Device


@functools.lru_cache(maxsize=4096)
def infer_on_data(name: str, text: Text, device: Device, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """Shape and dtype of each result, with -1 for a dimension that depends on the data; as `infer` (meta.py)."""
    with torch.no_grad():
        try:
            return _run_on_data(overload(name), text, inputs, devices.torch_name(device))
        except Exception as error:
            raise renamed(error, name) from None


# Data of several kinds, from the number of each element. What differs among their results depends on the data.
_Data = Callable[[torch.Tensor], torch.Tensor]
_DATA: list[_Data] = [
    torch.zeros_like,
    torch.ones_like,
    lambda numbers: torch.full_like(numbers, 2),
    lambda numbers: numbers % 3,
    lambda numbers: torch.sin(numbers * numbers) * 3,  # as good as random
]


def _below(size: int) -> _Data:
    return lambda numbers: numbers < size


def _run_on_data(op: Overload, text: Text, inputs: tuple[Spec, ...], device: str) -> tuple[Spec, ...]:
    """What results have in common whose shapes depend on the data; the rest is unknown."""
    if op.name == "_reshape_from_tensor":
        return (((-1,) * inputs[1][0][0], inputs[0][1]),)
    # A mask among indices has as many elements that count as the other indices have.
    sizes = {shape[-1] for shape, dtype in inputs if shape and not dtype.is_floating_point}
    masked = any(dtype in (torch.bool, torch.uint8) for _, dtype in inputs)
    counted = [_below(size) for size in sizes] if masked else []
    found: list[tuple[Spec, ...]] = []
    for data in (*_DATA, *counted):
        numbers = [torch.arange(math.prod(shape), dtype=torch.float64).view(shape) for shape, _ in inputs]
        tensors = [data(x).to(dtype).to(device) for x, (_, dtype) in zip(numbers, inputs, strict=True)]
        try:
            found.append(results_of(op, text, tensors, device))
        except Exception as error:  # such data is not for this operator
            failure = error
    if not found:
        raise failure
    if len({len(results) for results in found}) > 1:
        raise RuntimeError("the number of its results depends on the data, and a graph needs to know it")
    if len(found) == 1:
        return tuple(((-1,) * len(shape), dtype) for shape, dtype in found[0])
    return functools.reduce(common, found)
