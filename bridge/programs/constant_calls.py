"""The calls of a program that need to be made once in a process, as those that make a mask or a table of positions."""

from __future__ import annotations

from typing import NamedTuple

from bridge.programs.calls import Call, draws
from bridge.programs.listing import CHECKS, Listing
from bridge.programs.memory import storage_of

# What a program keeps of their results, in bytes. PyTorch frees them after each run.
_MOST_KEPT = 2**20


class _Memory(NamedTuple):
    """What memory a call has to do with, and whether it does nothing but compute."""

    read: set[int]
    written: set[int]
    results: dict[int, int]
    """With the number of bytes."""
    is_pure: bool


def constant_calls(listing: Listing, most: float = _MOST_KEPT) -> set[int]:
    """The positions of calls that follow from constants only, and whose results no other call writes to.

    Args:
        most: how many bytes their results may have in all.
    """
    calls = [_memory(listing, call) for call in listing.calls]
    varying = {storage_of(listing.tape.tensors[number]) for number in listing.inputs}
    while True:
        before = len(varying)
        found = _apart_from(varying, calls, most)
        if len(varying) == before:
            return found


def _apart_from(varying: set[int], calls: list[_Memory], most: float) -> set[int]:
    """The positions of calls that have nothing to do with memory that varies from run to run. That of other calls'
    results is added."""
    found: set[int] = set()
    kept: set[int] = set()
    read_by_others: set[int] = set()
    left = most
    for i, call in enumerate(calls):
        new = {storage: size for storage, size in call.results.items() if storage not in kept}
        is_apart = varying.isdisjoint(call.read | call.written | call.results.keys())
        if call.is_pure and is_apart and read_by_others.isdisjoint(call.written) and sum(new.values()) <= left:
            found.add(i)
            kept.update(new)
            left -= sum(new.values())
        else:
            varying.update(call.written, call.results)
            read_by_others.update(call.read)
    return found


def _memory(listing: Listing, call: Call) -> _Memory:
    tensors = listing.tape.tensors
    results = [tensors[number] for number in call.results if number is not None]
    return _Memory(
        {storage_of(tensors[number]) for number in call.operands},
        {storage_of(tensors[number]) for number in call.written},
        {storage_of(tensor): tensor.untyped_storage().nbytes() for tensor in results},
        call.op.namespace == "aten" and not draws(call) and call.op not in CHECKS,
    )
