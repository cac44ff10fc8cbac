"""The calls of a program that need to be made once in a process, as those that make a mask or a table of positions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from bridge.programs.calls import Call, draws
from bridge.programs.listing import CHECKS, Listing
from bridge.programs.memory import storage_of

# What a program keeps of their results, in bytes. PyTorch frees them after each run.
_MOST_KEPT = 2**20
# The same for what a GPU's program makes on the host or brings from there: it would wait for that in each run, and
# could not be launched as a CUDA graph.
_MOST_OF_HOST = 2**26


class _Memory(NamedTuple):
    """What memory a call has to do with, and whether it does nothing but compute."""

    read: set[int]
    written: set[int]
    results: dict[int, int]
    """With the number of bytes."""
    is_pure: bool
    is_of_host: bool
    """Whether something of it lies on the host of a GPU's program."""


def constant_calls(listing: Listing, most: float = _MOST_KEPT) -> set[int]:
    """The positions of calls that follow from constants only, and whose results no other call writes to.

    Args:
        most: how many bytes of their results may be kept.
    """
    tensors = listing.tape.tensors
    on_gpu = any(tensors[number].is_cuda for number in listing.inputs)
    calls = [_memory(listing, call, on_gpu) for call in listing.calls]
    inputs = {storage_of(tensors[number]) for number in listing.inputs}
    given = {storage_of(tensors[number]) for output in listing.outputs for number in output.registers}
    found = _apart(inputs, calls, math.inf, math.inf)
    used = given.union(*(call.read for i, call in enumerate(calls) if i not in found))
    of_host, of_device = (
        _bytes_of((calls[i] for i in found if calls[i].is_of_host is is_of_host), used) for is_of_host in (True, False)
    )
    fits = of_device <= most and of_host <= max(most, _MOST_OF_HOST)
    return found if fits else _apart(inputs, calls, most, max(most, _MOST_OF_HOST))


def _bytes_of(calls: Iterable[_Memory], used: set[int]) -> int:
    """Of those of their results that are used."""
    results = {storage: size for call in calls for storage, size in call.results.items()}
    return sum(size for storage, size in results.items() if storage in used)


def _apart(inputs: set[int], calls: list[_Memory], most: float, most_of_host: float) -> set[int]:
    """The positions of calls that have nothing to do with memory that varies from run to run, as that of inputs does.
    All their results have at most so many bytes, those of what is of the host apart from the others."""
    varying = set(inputs)
    while True:
        before = len(varying)
        found = _apart_from(varying, calls, most, most_of_host)
        if len(varying) == before:
            return found


def _apart_from(varying: set[int], calls: list[_Memory], most: float, most_of_host: float) -> set[int]:
    """The same for some memory that varies. That of other calls' results is added."""
    found: set[int] = set()
    kept: set[int] = set()
    read_by_others: set[int] = set()
    left = {True: most_of_host, False: most}
    for i, call in enumerate(calls):
        new = {storage: size for storage, size in call.results.items() if storage not in kept}
        is_apart = varying.isdisjoint(call.read | call.written | call.results.keys())
        fits = sum(new.values()) <= left[call.is_of_host]
        if call.is_pure and is_apart and read_by_others.isdisjoint(call.written) and fits:
            found.add(i)
            kept.update(new)
            left[call.is_of_host] -= sum(new.values())
        else:
            varying.update(call.written, call.results)
            read_by_others.update(call.read)
    return found


def _memory(listing: Listing, call: Call, on_gpu: bool) -> _Memory:
    tensors = listing.tape.tensors
    results = [tensors[number] for number in call.results if number is not None]
    return _Memory(
        {storage_of(tensors[number]) for number in call.operands},
        {storage_of(tensors[number]) for number in call.written},
        {storage_of(tensor): tensor.untyped_storage().nbytes() for tensor in results},
        call.op.namespace == "aten" and not draws(call) and call.op not in CHECKS,
        on_gpu and any(tensor.is_cpu for tensor in (*results, *(tensors[number] for number in call.operands))),
    )
