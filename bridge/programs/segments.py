"""The calls of backward, or of forward if it has no gradient, in several programs for the memory that they need.

A kernel of MindSpore's has memory for all that it gives before it runs, and keeps all that it takes until it ends.
PyTorch makes gradients one by one, and frees what forward saved after its last use. On a CPU a program's kernel does so
too (ms_ext/programs/pool.h). On a GPU it cannot, because a CUDA graph has its addresses: there backward is as many
kernels as it takes to need hardly more memory than PyTorch. So is a function that makes gradients itself, as
bridge.value_and_grad does: its first program is forward, and the others go on after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from bridge.programs.calls import Call, draws
from bridge.programs.capture import Captured
from bridge.programs.listing import Listing, Output, live
from bridge.programs.memory import storage_of
from bridge.programs.views import with_views

DEVICES = {"cuda"}
SHORTEST = 16  # calls: a kernel of fewer would be launched call by call
MOST = 8  # programs
ALLOWED = 1.03  # of the memory that PyTorch needs
ENOUGH = 1.1  # of that, for forward and backward in one: what such programs give others costs copies
SMALLEST = 1 << 24  # bytes of what PyTorch needs, below which nobody looks


@dataclass
class _Memory:
    """Some memory that calls use.

    Args:
        size: in bytes.
        first: the position of the call that makes it; -1 if it comes from outside.
        last: that of the last call that uses it; one more than all for what they are made for.
    """

    size: int
    first: int
    last: int


def segments(
    captured: Captured, calls: list[Call], wanted: Iterable[int], with_backward: bool = False
) -> list[list[Call]]:
    """Calls in one or more programs. Each takes nothing of later ones. All but the first draw nothing, and write to
    nothing that they have not made.

    Args:
        calls: those of forward, or of backward.
        wanted: the registers that they are made for.
        with_backward: whether they are forward and backward in one.
    """
    tape = captured.tape
    device = tape.tensors[captured.inputs[0]].device if captured.inputs else torch.device("cpu")
    if device.type not in DEVICES or len(calls) < 2 * SHORTEST:
        return [calls]
    made = {number for call in calls for number in call.results}
    given = [number for number in wanted if number in made]
    calls = live(Listing(tape, [], calls, [Output([number], captured.spec(number)) for number in given]))
    memories = _memories(captured, calls, given)
    cuts = _cuts(captured, calls, memories, device)
    costs = _Costs(list(memories.values()), len(calls))
    if costs.pytorchs < SMALLEST or (with_backward and costs.of(0, len(calls)) <= ENOUGH * costs.pytorchs):
        return [calls]
    ends = [0]
    while ends[-1] < len(calls):
        last = len(ends) == MOST
        ends.append(len(calls) if last else _end(costs, ends[-1], [cut for cut in cuts if cut > ends[-1]]))
    return [with_views(tape, calls[:begin], calls[begin:end]) for begin, end in itertools.pairwise(ends)]


def _memories(captured: Captured, calls: Sequence[Call], given: Iterable[int]) -> dict[int, _Memory]:
    """The memory that is not there all the time, as parameters and constants are."""
    tape = captured.tape
    kept = {storage_of(tape.tensors[number]) for number in (*captured.inputs, *tape.constants)}
    left = {storage_of(tape.tensors[number]) for number in given}
    found: dict[int, _Memory] = {}
    for i, call in enumerate(calls):
        made = [number for number in call.results if number is not None]
        for numbers, first in ((call.operands, -1), (made, i)):
            for number in numbers:
                storage = tape.tensors[number].untyped_storage()
                if storage._cdata not in kept:
                    memory = found.setdefault(storage._cdata, _Memory(storage.nbytes(), first, i))
                    memory.last = len(calls) if storage._cdata in left else i
    return found


def _cuts(captured: Captured, calls: Sequence[Call], memories: dict[int, _Memory], device: torch.device) -> list[int]:
    """The positions of calls that another program may begin with: from there on nothing is drawn, nothing is written
    that was there before, and what passes is memory on the device, or may be."""
    tensors = captured.tape.tensors
    allowed = [True] * (len(calls) + 1)
    computed_with = {number for call in calls if torch.Tag.pointwise in call.op.tags for number in call.operands}

    def forbid(memory: _Memory, last: int) -> None:
        for cut in range(memory.first + 1, min(last, len(calls) - 1) + 1):
            allowed[cut] = False

    for i, call in enumerate(calls):
        if draws(call):
            forbid(_Memory(0, -1, i), i)
        for number in call.written:
            forbid(memories.get(storage_of(tensors[number]), _Memory(0, -1, i)), i)
        for made in call.results:
            memory = None if made is None else memories.get(storage_of(tensors[made]))
            if made is None or memory is None or memory.first < 0:
                continue
            tensor = tensors[made]
            is_there = tensor.device == device or (_is_seed(tensor) and made not in computed_with)
            if not is_there or tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor():
                forbid(memory, memory.last)
    return [cut for cut in range(SHORTEST, len(calls) - SHORTEST + 1) if allowed[cut]] + [len(calls)]


def _is_seed(tensor: torch.Tensor) -> bool:
    """Whether a tensor on the host is like those that attention gives, for its gradient to draw the same: that takes
    them from the host and from the device. (Arithmetic rounds otherwise with numbers of the device.)"""
    return tensor.dim() == 0 and not tensor.is_floating_point() and not tensor.is_complex()


class _Costs:
    """What memory calls need.

    Args:
        memories: that its calls use.
        calls: how many there are.
    """

    def __init__(self, memories: Sequence[_Memory], calls: int) -> None:
        self._given = [memory for memory in memories if memory.first < 0]
        self._made = [memory for memory in memories if memory.first >= 0]
        self._calls = calls
        self.pytorchs = self._most(memories, 0, calls)

    @staticmethod
    def _most(memories: Sequence[_Memory], begin: int, end: int) -> int:
        """The most that is in use at a time by calls from one position to another."""
        changes = [0] * (end - begin + 1)
        for memory in memories:
            changes[max(memory.first, begin) - begin] += memory.size
            changes[min(memory.last + 1, end) - begin] -= memory.size
        most = used = 0
        for change in changes:
            used += change
            most = max(most, used)
        return most

    def of(self, begin: int, end: int) -> int:
        """Of a program of these calls, besides what is there all the time."""
        held = sum(memory.size for memory in (*self._given, *self._made) if memory.first < begin <= memory.last)
        inside = [memory for memory in self._made if begin <= memory.first < end]
        given = sum(memory.size for memory in inside if memory.last >= end)
        return held + given + self._most([memory for memory in inside if memory.last < end], begin, end)

    def gives(self, begin: int, end: int) -> bool:
        """Whether such a program gives anything."""
        return any(begin <= memory.first < end <= memory.last for memory in self._made)


def _end(costs: _Costs, begin: int, cuts: list[int]) -> int:
    """Where a program ends that begins there: as late as its memory allows, or where it needs the least."""
    step = max(1, len(cuts) // 32)  # to look at all would take long
    ends = [cut for cut in cuts if cut - begin >= SHORTEST][::-step][::-1] or cuts[-1:]
    needed = {end: costs.of(begin, end) for end in ends if costs.gives(begin, end)}
    fitting = [end for end, size in needed.items() if size <= ALLOWED * costs.pytorchs]
    return max(fitting) if fitting else min(needed, key=lambda end: (needed[end], -end), default=cuts[-1])
