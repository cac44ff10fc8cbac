"""Dimensions that are out of range. Some meta functions let them pass, where the kernels refuse them: softmax, sort."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
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
    """Raise what the kernel says of a dimension that no input has. It may take it: as that of the result, say."""
    rank = max((len(shape) for shape, _ in inputs), default=0)
    given = [argument.name for argument in op.schema.arguments if argument.base not in ("Device", "Generator")]
    missing = out_of_range(zip(given, text.values, strict=True), rank)
    if not missing or "CPU" not in op.devices or Fact.UNCHECKED in op.facts:
        return
    few = tuple((small(shape), dtype) for shape, dtype in inputs)
    ask(missing, lambda: run(op, text, few, "cpu"))


def small(shape: Iterable[int]) -> tuple[int, ...]:
    """What stands for a shape where a kernel is asked about dimensions, at which it looks first."""
    return tuple(min(size, 2) for size in shape)


def ask(missing: Iterable[int], call: Callable[[], Any]) -> None:
    """Raise what a call on small tensors says of these dimensions, and nothing that it says of the tensors."""
    try:
        call()
    except IndexError as error:
        if any(f"but got {number}" in str(error) for number in missing):
            raise
    except Exception:
        return


def ints(value: Any) -> Iterator[int]:
    """The ints among decoded arguments."""
    if isinstance(value, (list, tuple)):
        yield from itertools.chain.from_iterable(map(ints, value))
    elif isinstance(value, int):
        yield value
