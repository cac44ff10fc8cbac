"""Random draws that the function makes again: a checkpoint runs its part once more for the gradient, from the state
that the generator had before.

A program draws once. While it is captured, a generator's state is a number: how many draws there were. Where the
function sets a state back, the program takes what the draw gave the first time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from bridge.programs.calls import DEFAULT, Call, Refusal, Register, no_modes
from bridge.programs.replaced import Replacement

_CLONE = torch.ops.aten.clone.default
_COPY = torch.ops.aten.copy_.default
# A state that begins so is one of a capture. PyTorch's own are longer.
_MARK = 0x6472
_captures = itertools.count()


@dataclass
class _Draw:
    """A draw, and the registers of copies of what it gave."""

    call: Call
    copies: dict[int, int]


class Draws:
    """The draws of one capture.

    Args:
        new_register: makes a register like another one.
    """

    def __init__(self, new_register: Callable[[int], int]) -> None:
        self._new_register = new_register
        self._number = next(_captures)
        self._made: dict[str, list[_Draw]] = {"cpu": [], "cuda": []}
        self._position = {"cpu": 0, "cuda": 0}
        self._is_asked = False

    def calls(self, call: Call, device: str) -> list[Call]:
        """What the program does where the function draws."""
        made, position = self._made[device], self._position[device]
        self._position[device] += 1
        if position < len(made):
            return list(self._again(made[position], call))
        made.append(_Draw(call, {}))
        if not self._is_asked:
            return [call]
        made[-1].copies = {number: self._new_register(number) for number in _given(call)}
        return [call, *(_clone(number, copy) for number, copy in made[-1].copies.items())]

    def _again(self, draw: _Draw, call: Call) -> Iterator[Call]:
        first, second = _given(draw.call), _given(call)
        if call.op is not draw.call.op or len(first) != len(second):
            raise Refusal(f"{call.name} draws from a generator's state at which {draw.call.name} has drawn before")
        for one, other in zip(first, second, strict=True):
            copy = draw.copies[one]
            if other in call.written:
                yield Call(_COPY, [Register(other), Register(copy), DEFAULT], [other], [other])
            else:
                yield _clone(copy, other)

    def replacements(self) -> list[Replacement]:
        """What stands for PyTorch's functions of a generator's state."""
        return [
            Replacement(holder, f"{verb}_rng_state", function(device))
            for holder, device in ((torch, "cpu"), (torch.cuda, "cuda"))
            for verb, function in (("get", self._get), ("set", self._set))
        ]

    def _get(self, device: str) -> Callable[..., torch.Tensor]:
        def get_rng_state(*_: Any) -> torch.Tensor:
            self._is_asked = True
            with no_modes():
                return torch.tensor([_MARK, self._number, self._position[device]])

        return get_rng_state

    def _set(self, device: str) -> Callable[..., None]:
        def set_rng_state(state: torch.Tensor, *_: Any) -> None:
            with no_modes():
                mark, number, position = state.tolist() if state.numel() == 3 else (0, 0, 0)
            if (mark, number) != (_MARK, self._number):
                raise Refusal("the state of a generator is set, which a graph does not repeat")
            self._position[device] = position

        return set_rng_state


def _given(call: Call) -> list[int]:
    """The registers that have what a draw gave."""
    return list(dict.fromkeys([*call.written, *(number for number in call.results if number is not None)]))


def _clone(source: int, to: int) -> Call:
    return Call(_CLONE, [Register(source), torch.preserve_format], [to])
