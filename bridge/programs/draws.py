"""Random draws from a state of a generator that the function has kept and sets back, as `torch.random.fork_rng` does.

A checkpoint runs its part once more for the gradient, from the state that the generator had before. A program draws
once: while it is captured, a generator's state is a number, how many draws there were, and where backward sets a state
back, the program takes what the draw gave the first time. On a GPU forward does so too. On a CPU forward keeps the
generator's state, sets it back, and draws.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from bridge.programs import python_draws
from bridge.programs.calls import DEFAULT, Call, Refusal, Register, no_modes
from bridge.programs.cudnn_dropout import is_state
from bridge.programs.replaced import Replacement, caller

_CLONE = torch.ops.aten.clone.default
_COPY = torch.ops.aten.copy_.default
_DROPOUT = torch.ops.aten.native_dropout.default
_DROPPED = torch.ops.aten.native_dropout_backward.default
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
        new_state: makes a register for a generator's state.
        data_of: gives the data of a tensor that is the same in each call; None if it is not.
        calls, tensors: those of the run, and of its registers.
    """

    def __init__(
        self,
        new_register: Callable[[int], int],
        new_state: Callable[[], int],
        data_of: Callable[[torch.Tensor], torch.Tensor | None],
        calls: list[Call],
        tensors: list[torch.Tensor],
    ) -> None:
        self._new_register = new_register
        self._new_state = new_state
        self._data_of = data_of
        self._calls = calls
        self._tensors = tensors
        self._states: list[int | None] = []
        """For each state that was asked for the register that has it, if one has."""
        self._is_set = False
        """Whether the program sets a state: then what was drawn is not in the order of states."""
        self._number = next(_captures)
        self._made: dict[str, list[_Draw]] = {"cpu": [], "cuda": [], python_draws.DEVICE: []}
        self._position = dict.fromkeys(self._made, 0)
        self._is_asked = False
        self._is_checkpoint = False
        """Whether a checkpoint has set the state back, which makes the same calls again."""

    def calls(self, call: Call, device: str) -> list[Call]:
        """What the program does where the function draws."""
        made, position = self._made[device], self._position[device]
        self._position[device] += 1
        if position < len(made):
            if self._is_set:
                raise Refusal(
                    f"{call.name} draws again, as in a checkpoint, where the state of a generator is set back too: "
                    "PyNative mode takes it"
                )
            return list(self._again(made[position], call))
        made.append(_Draw(call, {}))
        if not self._is_asked:
            return [call]
        made[-1].copies = {number: self._new_register(number) for number in _given(call)}
        return [call, *(_clone(number, copy) for number, copy in made[-1].copies.items())]

    def _again(self, draw: _Draw, call: Call) -> Iterator[Call]:
        if is_state(call):
            raise Refusal(
                "a recurrent layer of cuDNN's with dropout runs again, as in a checkpoint: PyNative mode takes it"
            )
        first, second = _given(draw.call), _given(call)
        if call.op is not draw.call.op or not self._are_alike(draw.call, call):
            raise Refusal(
                f"{call.name} draws from a generator's state at which {draw.call.name} has drawn before, and is "
                "another draw: PyNative mode takes it"
            )
        if call.op is _DROPOUT:  # of another input, perhaps
            result, mask = second
            scale = _scale(self._tensors[result].dtype, *call.arguments[1:])
            yield _clone(draw.copies[first[1]], mask)
            yield Call(_DROPPED, [call.arguments[0], Register(mask), scale], [result])
            return
        if not self._is_checkpoint and takes_data(call):
            raise Refusal(f"{call.name} draws again, perhaps of other data, from a generator's state that was set")
        for one, other in zip(first, second, strict=True):
            copy = draw.copies[one]
            if other in call.written:
                yield Call(_COPY, [Register(other), Register(copy), DEFAULT], [other], [other])
            else:
                yield _clone(copy, other)

    def _are_alike(self, first: Call, second: Call) -> bool:
        """Whether two draws are of the same sizes and by the same numbers."""

        def numbers(value: Any) -> Any:
            if isinstance(value, Register):
                return None
            return [*map(numbers, value)] if isinstance(value, (list, tuple)) else value

        def forms(call: Call) -> list[Any]:
            return [(self._tensors[number].shape, self._tensors[number].dtype) for number in _given(call)]

        return forms(first) == forms(second) and numbers(first.arguments) == numbers(second.arguments)

    def refuse_set_back(self) -> None:
        """Refuse a function that ends with a generator's state before its draws, where a program does not set it."""
        if any(position < len(self._made[device]) for device, position in self._position.items()):
            raise Refusal(
                "the state of a generator is set back on a GPU or in backward, as torch.random.fork_rng does, which a "
                "graph does not do: PyNative mode does"
            )

    def replacements(self) -> list[Replacement]:
        """What stands for PyTorch's functions of a generator's state."""
        of_states = [
            Replacement(holder, f"{verb}_rng_state", function(device))
            for holder, device in ((torch, "cpu"), (torch.random, "cpu"), (torch.cuda, "cuda"))
            for verb, function in (("get", self._get), ("set", self._set))
        ]
        generator = _Generator(self._get("cpu"), self._set("cpu"))
        return [*of_states, *(Replacement(holder, "default_generator", generator) for holder in (torch, torch.random))]

    def _get(self, device: str) -> Callable[..., torch.Tensor]:
        def get_rng_state(*_: Any) -> torch.Tensor:
            self._is_asked = True
            self._states.append(None)
            if device == "cpu" and not _is_backward():
                self._states[-1] = state = self._new_state()
                self._calls.append(Call(torch.ops.bridge.generator_state.default, [device], [state]))
            with no_modes():
                return torch.tensor([_MARK, self._number, self._position[device], len(self._states) - 1])

        return get_rng_state

    def _set(self, device: str) -> Callable[..., None]:
        def set_rng_state(given: torch.Tensor, *_: Any) -> None:
            with no_modes():
                state = self._data_of(given) if isinstance(given, FakeTensor) else given
                has_four = state is not None and state.numel() == 4
                mark, number, position, which = state.tolist() if state is not None and has_four else (0, 0, 0, 0)
            if (mark, number) != (_MARK, self._number):
                raise Refusal("the state of a generator is set, which a graph does not repeat")
            self._is_checkpoint = caller().f_globals.get("__name__") == "torch.utils.checkpoint"
            register = self._states[which]
            if register is not None and not _is_backward():
                put = torch.ops.bridge.set_generator_state.default
                self._calls.append(Call(put, [Register(register), device], []))
                self._is_set = True
            else:
                self._position[device] = position

        return set_rng_state


class _Generator:
    """Stands for `torch.default_generator`, in this thread. It is no torch.Generator, whose memory PyTorch would read.

    Args:
        get_state, set_state: what stands for its methods.
    """

    def __init__(self, get_state: Callable[..., torch.Tensor], set_state: Callable[..., None]) -> None:
        self._stand_ins = {"get_state": get_state, "set_state": set_state}
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() != self._thread:
            return getattr(torch._C.default_generator, name)
        if name not in self._stand_ins:
            raise Refusal(
                f"torch.default_generator.{name} is asked for, which a graph does not take: PyNative mode does"
            )
        return self._stand_ins[name]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = torch._C.default_generator
        args, kwargs = tree_map_only(_Generator, lambda _: own, (args, kwargs or {}))
        return func(*args, **kwargs)


def unused_states(calls: Sequence[Call]) -> set[int]:
    """The ids of those of these calls that keep a generator's state which none of them sets."""
    state, put = torch.ops.bridge.generator_state.default, torch.ops.bridge.set_generator_state.default
    used = {number for call in calls if call.op is put for number in call.operands}
    return {id(call) for call in calls if call.op is state and used.isdisjoint(call.results)}


def _is_backward() -> bool:
    return torch._C._current_autograd_node() is not None


@contextlib.contextmanager
def draws_nothing() -> Iterator[None]:
    """What is drawn inside is given back to PyTorch's generators.

    `torch.random.fork_rng` would not do it while a function is captured: it calls `torch.cuda.get_rng_state`.
    """
    generators = [torch._C.default_generator, *torch.cuda.default_generators]
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            if not torch.equal(generator.get_state(), state):
                generator.set_state(state)  # which has cuDNN's dropout begin anew


def _given(call: Call) -> list[int]:
    """The registers that have what a draw gave."""
    return list(dict.fromkeys([*call.written, *(number for number in call.results if number is not None)]))


def takes_data(call: Call) -> bool:
    """Whether what a draw takes from a generator may depend on the data of a tensor, and not only on its shape."""
    is_like = call.op._schema.name.endswith("_like") or call.op is _DROPOUT
    return not is_like and any(number not in call.written for number in call.operands)


def _scale(dtype: torch.dtype, probability: float, is_training: bool | None) -> float:
    """By what the kernel of dropout multiplies, in its precision."""
    if is_training is False or probability == 1:
        return 1.0
    number = np.float64 if dtype is torch.float64 else np.float32
    return float(number(1) / number(1 - probability))


def _clone(source: int, to: int) -> Call:
    return Call(_CLONE, [Register(source), torch.preserve_format], [to])
