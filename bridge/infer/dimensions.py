"""Dimensions that are out of range. Some meta functions let them pass, where the kernels refuse them: softmax, sort."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from bridge.infer.trial import Spec, run
from bridge.op.encoding import Text
from bridge.op.overload import Overload
from bridge.op.table import Fact


def out_of_range(arguments: Iterable[tuple[str, Any]], rank: int) -> list[int]:
    """The dimensions among named arguments that no tensor of this rank or a lower one has."""
    named = (number for name, value in arguments if name.startswith("dim") for number in ints(value))
    return [number for number in named if number not in range(-rank, max(rank, 1))]


def refuse_out_of_range(op: Overload, text: Text, inputs: tuple[Spec, ...]) -> None:
    """Raise what the kernel says of a dimension that no input has. It may take it: as that of the result, say.

    The kernel looks at dimensions first, so that it is asked on tensors of few elements.
    """
    rank = max((len(shape) for shape, _ in inputs), default=0)
    given = [argument.name for argument in op.schema.arguments if argument.base not in ("Device", "Generator")]
    missing = out_of_range(zip(given, text.values, strict=True), rank)
    if not missing or "CPU" not in op.devices or Fact.UNCHECKED in op.facts:
        return
    small = tuple((tuple(min(size, 2) for size in shape), dtype) for shape, dtype in inputs)
    try:
        run(op, text, small, "cpu")
    except IndexError as error:
        if any(f"but got {number}" in str(error) for number in missing):
            raise
    except Exception:
        return  # it refuses the small tensors


def ints(value: Any) -> Iterator[int]:
    """The ints among decoded arguments."""
    if isinstance(value, list):
        yield from itertools.chain.from_iterable(map(ints, value))
    elif isinstance(value, int):
        yield value
