"""Brings a primitive's flat results into the form that ATen's schema has."""
from __future__ import annotations

import functools
from typing import Any

from bridge.encoding import decode
from bridge.schema import schema


@functools.lru_cache(maxsize=4096)
def places(name: str, text: str, count: int) -> tuple[Any, ...]:
    """Where each result of the overload is among `count` flat ones: an int, (start, stop) for a list, or
    None for one left out."""
    op = schema(name)
    if op.output_mask is not None:
        mask = decode(text)[op.output_mask]
        return tuple(sum(mask[:i]) if wanted else None for i, wanted in enumerate(mask))
    lists = op.results.count("List[Tensor]")
    length = (count - op.redraws - (len(op.results) - lists)) // lists if lists else 0
    found: list[Any] = []
    position = 0
    for kind in op.results:
        if kind == "List[Tensor]":
            found.append((position, position + length))
            position += length
        else:
            found.append(position)
            position += 1
    return tuple(found)


def arrange(name: str, text: str, results: tuple[Any, ...]) -> Any:
    """The flat results of a primitive, in the overload's form."""
    arranged = tuple(
        None if place is None else results[place] if isinstance(place, int) else results[place[0] : place[1]]
        for place in places(name, text, len(results))
    )
    return arranged[0] if len(arranged) == 1 else arranged
