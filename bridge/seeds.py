"""Seeds: random operators draw from PyTorch's default generators, which follow MindSpore's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mindspore as ms
import mindspore.dataset
import numpy as np
import torch
from mindspore.common.generator import Generator, default_generator

from bridge import _mindspore
from bridge.op import devices
from bridge.primitive.kernel import one_at_a_time

# Of the state of a generator of MindSpore's: seed and offset.
_OWN_SIZE = 16


def seed(number: int) -> None:
    """Seed PyTorch's default generators, after the draws that were asked for before."""
    _mindspore.wait()
    torch.manual_seed(number)


class _Followed:
    """What PyTorch was seeded by: MindSpore's seed and PyTorch's own, when the package was imported and when MindSpore
    was seeded."""

    def __init__(self) -> None:
        if _mindspore.is_seeded(default_generator):  # by mindspore.manual_seed
            torch.manual_seed(default_generator.initial_seed())
        elif ms.get_seed() is not None:  # by mindspore.set_seed
            torch.manual_seed(ms.get_seed())
        self._note()

    def follow(self) -> None:
        """Seed as `mindspore.set_seed` has."""
        seed(ms.dataset.config.get_seed())
        self._note()

    def catch_up(self) -> None:
        """Seed as `mindspore.manual_seed` has been called so far, unless PyTorch was seeded after that."""
        is_later = default_generator.initial_seed() != self._own and _mindspore.is_seeded(default_generator)
        if is_later and torch.initial_seed() == self._of_torch:
            seed(default_generator.initial_seed())

    def _note(self) -> None:
        self._own, self._of_torch = default_generator.initial_seed(), torch.initial_seed()


_followed = _Followed()
_mindspore.after_set_seed(_followed.follow)


def follow_mindspore() -> None:
    """Make MindSpore's seeds and states those of the random operators too."""
    _followed.catch_up()
    _follow_default_generator()
    _have_pytorch_wait()


def _follow_default_generator() -> None:
    """Make `mindspore.manual_seed`, `seed`, `get_rng_state` and `set_rng_state` mean the random operators too.

    MindSpore has no hook for that. These functions, which `recompute` and others import by name, call methods of the
    default generator. A state of MindSpore's is followed by those of PyTorch's generators.
    """
    seed_own, draw_seed = default_generator.manual_seed, default_generator.seed
    get_own, set_own = default_generator.get_state, default_generator.set_state

    # A state that was taken before now is MindSpore's only. PyTorch's has not changed since then.
    own_before, before = get_own().asnumpy(), _states()

    def manual_seed(number: int) -> Generator:
        found = seed_own(number)
        seed(number)
        return found

    def seed_by_chance() -> int:
        number = draw_seed()
        seed(number)
        return number

    def get_state() -> ms.Tensor:
        _mindspore.wait()
        return ms.Tensor(np.concatenate([get_own().asnumpy(), _states()]))

    def set_state(state: ms.Tensor) -> None:
        _mindspore.wait()
        set_own(state[:_OWN_SIZE])
        numbers = state.asnumpy()
        own, drawn = numbers[:_OWN_SIZE], numbers[_OWN_SIZE:]
        if drawn.size:
            _restore(drawn)
        elif _is_no_later(own, own_before):
            _restore(before)  # any other comes from a graph, which has MindSpore's only

    for name, function in (
        ("manual_seed", manual_seed), ("seed", seed_by_chance), ("get_state", get_state), ("set_state", set_state)
    ):  # fmt: skip
        setattr(default_generator, name, _mindspore.InPyNative(function, getattr(default_generator, name)))
    _take_longer_states()


def _have_pytorch_wait() -> None:
    """Make PyTorch's own functions for seeds and states come after the draws that MindSpore was asked for before: on a
    GPU it makes them later. Not inside a call of the bridge's, whose lock what MindSpore still has to do may want."""
    for holder in (torch, torch.random, torch.cuda, torch.cuda.random):
        for name in (
            "manual_seed", "manual_seed_all", "seed", "seed_all", "get_rng_state", "get_rng_state_all", "set_rng_state",
            "set_rng_state_all",
        ):  # fmt: skip
            function = getattr(holder, name, None)
            if function is not None:
                setattr(holder, name, _waiting(function))


def _waiting(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def waiting(*args: Any, **kwargs: Any) -> Any:
        if not one_at_a_time._is_owned():  # type: ignore[attr-defined]
            _mindspore.wait_outside()
        return function(*args, **kwargs)

    return waiting


def _states() -> np.ndarray:
    """The states of PyTorch's default generators, of the CPU and then of the GPU, as bytes."""
    states = [torch.get_rng_state()]
    if _draws_on_gpu():
        states.append(torch.cuda.get_rng_state(devices.torch_name("GPU")))
    return np.concatenate([state.numpy() for state in states])


def _restore(states: np.ndarray) -> None:
    """The reverse of `_states`."""
    drawn = torch.from_numpy(states.copy())
    on_host = torch.get_rng_state().numel()
    torch.set_rng_state(drawn[:on_host])
    if drawn.numel() > on_host and _draws_on_gpu():
        torch.cuda.set_rng_state(drawn[on_host:], devices.torch_name("GPU"))


def _is_no_later(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether a state of MindSpore's, seed and offset, comes before another of the same seed, or is it."""
    (seed, offset), (other_seed, other_offset) = one.view(np.int64), other.view(np.int64)
    return seed == other_seed and offset <= other_offset


def _take_longer_states() -> None:
    """Make any other generator of MindSpore's take its part of the default one's state."""
    set_own = Generator.set_state

    def set_state(self, state):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        set_own(self, state[:_OWN_SIZE])

    Generator.set_state = set_state


def _draws_on_gpu() -> bool:
    return devices.target() == "GPU" and devices.has_cuda_set()
