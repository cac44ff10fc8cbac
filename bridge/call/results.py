"""Brings a primitive's flat results into the form that ATen's schema has."""

from __future__ import annotations

import functools
from typing import Any

from bridge.op.encoding import Text
from bridge.op.overload import Overload, overload


def _given_length(op: Overload, text: Text, result: int) -> int | None:
    """The length of a result that is a list, if it has the name of an argument: "grads_out" is the new "grads"."""
    names = [argument.name for argument in op.schema.arguments if argument.base not in ("Device", "Generator")]
    name = (op.schema.result_names[result] or "").removesuffix("_out")
    return len(text.values[names.index(name)]) if name in names else None


@functools.lru_cache(maxsize=4096)
def places(name: str, text: Text, count: int) -> tuple[Any, ...]:
    """Where each result of the overload is among `count` flat ones: an int, (start, stop) for a list, or
    None for one left out."""
    op = overload(name)
    if op.schema.output_mask is not None:
        mask = text.values[op.schema.output_mask]
        return tuple(sum(mask[:i]) if wanted else None for i, wanted in enumerate(mask))
    lists = [i for i, kind in enumerate(op.schema.results) if kind == "List[Tensor]"]
    lengths = {i: _given_length(op, text, i) for i in lists}
    unknown = [i for i in lists if lengths[i] is None]
    known = sum(n for n in lengths.values() if n is not None)
    left = count - op.redraws - (len(op.schema.results) - len(lists)) - known
    found: list[Any] = []
    position = 0
    for i, kind in enumerate(op.schema.results):
        if kind == "List[Tensor]":
            given = lengths[i]
            length = left // len(unknown) if given is None else given
            found.append((position, position + length))
            position += length
        else:
            found.append(position if position < count - op.redraws else None)
            position += 1
    return tuple(found)


def arrange(name: str, text: Text, results: tuple[Any, ...]) -> Any:
    """The flat results of a primitive, in the overload's form."""
    arranged = tuple(
        None if place is None else results[place] if isinstance(place, int) else results[place[0] : place[1]]
        for place in places(name, text, len(results))
    )
    return arranged[0] if len(arranged) == 1 else arranged
