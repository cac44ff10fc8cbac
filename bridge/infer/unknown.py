"""Inference for graph mode, where dimensions, ranks and sizes among the arguments may be unknown."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from fractions import Fraction

import torch

from bridge.call.torch_call import renamed
from bridge.infer.meta import infer
from bridge.infer.shapes import STAND_INS, common, filled
from bridge.infer.trial import Spec, run
from bridge.op import devices
from bridge.op.encoding import Text
from bridge.op.overload import overload
from bridge.op.schema import label
from bridge.op.table import Device, Fact

Infer = Callable[[str, Text, str, tuple[Spec, ...]], tuple[Spec, ...]]


def infer_unknown(
    name: str, text: Text, device: Device, inputs: tuple[Spec, ...], infer: Infer = infer
) -> tuple[Spec, ...]:
    """Shape and dtype of each result, where dimensions may be unknown (-1) and so may the rank (a single -2).

    What cannot be told from the known dimensions is unknown in the results too.

    Args:
        infer: what infers where all is known (meta.py, on_data.py).

    Raises:
        ValueError: how many results there are cannot be told.
        Exception: what `infer` raises.
    """
    if all(size >= 0 for shape, _ in inputs for size in shape):
        return infer(name, text, device, inputs)
    if any(-2 in shape for shape, _ in inputs):
        return tuple(((-2,), dtype) for _, dtype in _infer_with_any_rank(infer, name, text, device, inputs))
    if text.lengths:
        return _infer_with_lengths(infer, name, text, device, inputs)
    try:
        first, second = (_infer_filled(infer, name, text, device, inputs, size) for size in STAND_INS)
    except Exception as error:
        return _infer_ranks(infer, name, text, device, inputs, error)
    if len(first) != len(second):
        raise ValueError(f"{label(name)}: how many results it has follows from the size of a dimension that is unknown")
    return common(first, second)


def _infer_filled(
    infer: Infer, name: str, text: Text, device: Device, inputs: tuple[Spec, ...], unknown: int
) -> tuple[Spec, ...]:
    return infer(name, text, device, tuple((filled(shape, unknown), dtype) for shape, dtype in inputs))


def _infer_ranks(
    infer: Infer, name: str, text: Text, device: Device, inputs: tuple[Spec, ...], refusal: Exception
) -> tuple[Spec, ...]:
    """The results without their sizes, where an unknown dimension has to be 1, or as long as a known one."""
    for size in sorted({1, *(size for shape, _ in inputs for size in shape if size > 0)}):
        try:
            found = _infer_filled(infer, name, text, device, inputs, size)
        except Exception:
            continue
        return tuple(((-1,) * len(shape), dtype) for shape, dtype in found)
    raise refusal


def _infer_with_lengths(
    infer: Infer,
    name: str,
    text: Text,
    device: Device,
    inputs: tuple[Spec, ...],
) -> tuple[Spec, ...]:
    """The results where arguments are sizes that only the run tells.

    How these are related to the inputs' unknown dimensions is not known: equal, a part, a product with others. Those of
    the results' dimensions are known that come out alike for every relation that fits.
    """
    known = {size for shape, _ in inputs for size in shape if size > 1}
    factors = [Fraction(1), Fraction(2), Fraction(1, 2), *map(Fraction, sorted(known)[:4])]
    found: list[tuple[Spec, ...]] = []
    for chosen in itertools.islice(itertools.product(factors, repeat=len(text.lengths)), 64):
        tried = []
        for size in STAND_INS:
            at = {position: int(size * factor) for position, factor in zip(text.lengths, chosen, strict=True)}
            stand_ins = tuple((filled(shape, at.get(i, size)), dtype) for i, (shape, dtype) in enumerate(inputs))
            try:
                tried.append(infer(name, text, device, stand_ins))
            except Exception as error:
                refusal = error
                break
        else:
            if len({len(results) for results in (*tried, *found)}) > 1:
                raise ValueError(f"{label(name)}: how many results it has follows from a size that is unknown")
            found += tried
    if found:
        return functools.reduce(common, found)
    op = overload(name)
    if Fact.SHAPED_BY_ARGUMENT in op.facts:
        sizes = next(value for value in text.values if isinstance(value, list))
        return ((tuple(size if isinstance(size, int) else -1 for size in sizes), inputs[0][1]),)
    raise refusal


def _infer_with_any_rank(
    infer: Infer, name: str, text: Text, device: Device, inputs: tuple[Spec, ...]
) -> tuple[Spec, ...]:
    for rank in (4, 3, 2, 5, 1):
        tried = tuple(((-1,) * rank if -2 in shape else shape, dtype) for shape, dtype in inputs)
        try:
            return infer_unknown(name, text, device, tried, infer)
        except Exception as error:
            last = error
    raise last


@functools.lru_cache(maxsize=4096)
def check_dtypes(name: str, text: Text, device: Device, inputs: tuple[Spec, ...]) -> None:
    """Raise RuntimeError if the kernel refuses these dtypes: floating ones that differ, which meta functions let pass.

    For graph mode, where the kernel itself would say so when the graph runs.
    """
    floating = {dtype for _, dtype in inputs if dtype.is_floating_point}
    if len(floating) < 2:
        return
    op = overload(name)
    if not op.dispatched or any(-2 in shape for shape, _ in inputs):
        return
    stand_ins = tuple((filled(shape, STAND_INS[0]), dtype) for shape, dtype in inputs)
    try:
        with torch.no_grad():
            run(op, text, stand_ins, devices.torch_name(device))
    except RuntimeError as error:
        if "type" in str(error):  # not what zeros in the place of data may cause
            raise RuntimeError(f"{renamed(error, name)}; {_CAST_PARAMETERS}") from None


_CAST_PARAMETERS = (
    "in a graph, mixed precision casts what a cell is given, but not the parameters that it passes to a function: cast "
    "the parameters too"
)
