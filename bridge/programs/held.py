"""What buffers hold while a function is captured. `if not self.initialized:` and `x[:, : self.length]` follow from it.

Where a graph cannot be for whatever they hold, it is for what they hold now, and checks that when it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

import torch

from bridge import _mindspore
from bridge.op import devices
from bridge.programs.calls import Call, Refusal, draws, no_modes
from bridge.programs.data_sizes import Place
from bridge.programs.memory import storage_of
from bridge.programs.reads import stack
from bridge.programs.values import Values, make

TAKEN = "a graph takes what buffers held when it was compiled, and PyNative mode what they hold now"


class Changes(Refusal):
    """A program changes the buffers that it asks."""


class Held:
    """What buffers hold, and frozen parameters.

    Args:
        values: what makes them known.
        calls: those that are written down.
        tensors: those of the registers.
        constants: the registers of constants.

    Attributes:
        taken: the tensors that the program takes to hold what they hold now, by their registers.
    """

    def __init__(
        self, values: Values, calls: list[Call], tensors: list[torch.Tensor], constants: dict[int, torch.Tensor]
    ) -> None:
        self.taken: dict[int, torch.Tensor] = {}
        self._values, self._calls, self._tensors, self._constants = values, calls, tensors, constants
        self._state: dict[int, torch.Tensor] = {}
        self._where: dict[int, TracebackType | None] = {}  # the program was when it asked for them

    def add(self, tensor: torch.Tensor, register: int) -> None:
        """Know a parameter or buffer."""
        self._state[register] = tensor

    def answer(self, register: int) -> bool | None:
        """The bool that a register holds; None if it follows from something else, or from what the program changes."""
        found = self._data(register)
        with no_modes():
            return None if found is None else bool(found)

    def size(self, place: Place) -> int | None:
        """The size that something has there; None as for `answer`."""
        found = self._data(place.register)
        if found is None:
            return None
        with no_modes():
            if isinstance(place.dimension, int):
                return found.shape[place.dimension]
            return int(found.count_nonzero()) if place.dimension == "marked" else int(found)

    def refuse_changes(self) -> None:
        """Raise Changes if the program, which is at its end, has changed what it takes to be as it is."""
        for number in self.taken:
            if self._is_written([number]):
                message = (
                    "Python (`if`, `int` ...) asks for what a buffer holds that the same call changes, which a graph "
                    "does not follow: call the module once in PyNative mode before, if only its first call does that"
                )
                raise Changes(message).with_traceback(self._where[number])

    def has_answer(self, register: int) -> bool:
        """Whether `answer` gives one. Nothing is taken."""
        return self._behind(register) is not None

    def _behind(self, register: int) -> tuple[set[int], list[Call]] | None:
        """The buffers, frozen parameters and constants that a register follows from, and the calls that make it, last
        ones first; None as for `answer`."""
        needed, calls = self._values.behind(register)
        sources = needed.difference(*(call.results for call in calls))
        known = self._constants.keys() | self._frozen().keys()
        is_known = sources <= known and not self._is_written(needed) and not any(map(draws, calls))
        return (sources, calls) if is_known else None

    def _frozen(self) -> dict[int, torch.Tensor]:
        return {number: tensor for number, tensor in self._state.items() if not tensor.requires_grad}

    def _data(self, register: int) -> torch.Tensor | None:
        """What a register holds, computed from the buffers; None as for `answer`."""
        behind = self._behind(register)
        if behind is None:
            return None
        sources, calls = behind
        frozen = self._frozen()
        data = {**self._constants, **frozen}
        wait()
        with no_modes(), torch.no_grad():
            known = {number: data[number].detach() for number in sources}
            for call in reversed(calls):
                make(call, known)
        for number in sources & frozen.keys():
            self.taken[number], self._where[number] = frozen[number], stack()
        return known[register]

    def _is_written(self, registers: Iterable[int]) -> bool:
        written = {storage_of(self._tensors[number]) for call in self._calls for number in call.written}
        return not written.isdisjoint(storage_of(self._tensors[number]) for number in registers)


def wait() -> None:
    """Until what MindSpore writes to buffers is there, also after a graph that raised an error. A graph that meets new
    sizes asks from the thread that launches it."""
    _mindspore.wait_outside()
    if devices.target() == "GPU":
        torch.cuda.synchronize()
