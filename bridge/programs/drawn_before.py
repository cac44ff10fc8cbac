"""Random numbers that a size or an answer follows from, as of `if torch.rand(()) < self.layerdrop: return x`.

The program that counts runs before the module's, which is to draw the same numbers. So it makes all draws in turn up to
the last that it needs, and then sets the generators back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from bridge.programs import python_draws
from bridge.programs.calls import DEFAULT, Call, Refusal, Register, draws
from bridge.programs.cudnn_dropout import is_state
from bridge.programs.draws import takes_data
from bridge.programs.listing import new_register
from bridge.programs.tape import Tape

_CUDNN = (
    "a size or an answer follows from random numbers, and a recurrent layer of cuDNN's draws for its dropout before, "
    "from a state of its own: PyNative mode takes it"
)


def with_draws(
    tape: Tape, found: Collection[int], behind: Callable[[Iterable[int], int], set[int]]
) -> dict[int, list[Call]]:
    """The calls of a program that counts, by their positions on the tape: with the draws that come before its own.

    Args:
        found: the positions of those that it needs for what it gives.
        behind: gives the positions of those that some registers follow from, before a position.
    """
    needed = {*found}
    while True:
        own = sorted(i for i in needed if draws(tape.calls[i]))
        last = {tape.device(tape.calls[i]): i for i in own}
        before = [
            i
            for i, call in enumerate(tape.calls)
            if i not in needed and draws(call) and i < last.get(tape.device(call), 0)
        ]
        of_data = [i for i in before if takes_data(tape.calls[i])]
        if not of_data:
            break
        needed.update(of_data, *(behind(tape.calls[i].operands, i) for i in of_data))
    if any(is_state(tape.calls[i]) for i in (*own, *before)):
        raise Refusal(_CUDNN)
    return {**{i: [tape.calls[i]] for i in needed}, **{i: _for_nobody(tape, tape.calls[i]) for i in before}}


def given_back(tape: Tape, calls: Sequence[Call]) -> list[Call]:
    """These calls, between those that note the generators' states and those that set them back."""
    begin, end = [], []
    ops: Any = torch.ops.bridge
    for device in sorted({tape.device(call) for call in calls if draws(call)}):
        with tape.fake_mode:
            state = new_register(tape, torch.empty(0, dtype=torch.uint8))
        if device == python_draws.DEVICE:
            begin.append(Call(python_draws.STATE, [], [state]))
            end.append(Call(python_draws.SET_STATE, [Register(state)], []))
        else:
            begin.append(Call(ops.generator_state.default, [device], [state]))
            end.append(Call(ops.set_generator_state.default, [Register(state), device], []))
    return [*begin, *calls, *end]


def _for_nobody(tape: Tape, call: Call) -> list[Call]:
    """The same draw, of memory of its own, to which it may write. It lies there in the same way: PyTorch's kernels draw
    otherwise for what is not contiguous."""
    made: dict[int, Call] = {}
    own: dict[int, int] = {}

    def like(number: int) -> int:
        tensor = tape.tensors[number]
        with tape.fake_mode:
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        return new_register(tape, made)

    def given(value: Any) -> Any:
        if isinstance(value, Register):
            if value.number not in own:
                own[value.number] = like(value.number)
                tensor = tape.tensors[value.number]
                form = [[*tensor.shape], [*tensor.stride()], tensor.dtype, DEFAULT, tensor.device, DEFAULT]
                made[value.number] = Call(torch.ops.aten.empty_strided.default, form, [own[value.number]])
            return Register(own[value.number])
        return [given(item) for item in value] if isinstance(value, list) else value

    arguments = given(call.arguments)
    results = [None if number is None else own.get(number) or like(number) for number in call.results]
    written = [own[number] for number in call.written]
    return [*made.values(), replace(call, arguments=arguments, results=results, written=written)]
