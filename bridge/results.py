"""Brings a primitive's flat results into the form that ATen's schema has."""
from __future__ import annotations

import functools
from typing import Any

from bridge.encoding import decode
from bridge.schema import schema


@functools.lru_cache(maxsize=4096)
def places(name: str, text: str, count: int) -> tuple[Any, ...]:
    """Where each result of the overload is among `count` flat ones: an int, a slice, or None for one left out."""
    op = schema(name)
    if op.output_mask is not None:
        mask = decode(text)[op.output_mask]
        return tuple(sum(mask[:i]) if wanted else None for i, wanted in enumerate(mask))
    lists = op.results.count("List[Tensor]")
    length = (count - (len(op.results) - lists)) // lists
    found: list[Any] = []
    position = 0
    for kind in op.results:
        if kind == "List[Tensor]":
            found.append(slice(position, position + length))
            position += length
        else:
            found.append(position)
            position += 1
    return tuple(found)
