"""Seeds: random operators draw from PyTorch's default generators, which follow MindSpore's."""
from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import mindspore as ms
import mindspore.dataset
import numpy as np
import torch
from mindspore.common.generator import Generator, default_generator
from mindspore.ops.primitive import _pynative_executor

from bridge import devices

# Of the state of a generator of MindSpore's: seed and offset.
_OWN_SIZE = 16


def manual_seed(seed: int) -> None:
    """Seed the random operators: from here on they draw what PyTorch draws after `torch.manual_seed(seed)`.

    `mindspore.set_seed` and `mindspore.manual_seed` do this too.
    """
    _pynative_executor.sync()  # draws that were asked for before come from the old seed
    torch.manual_seed(seed)


def follow_mindspore() -> None:
    """Make MindSpore's seeds and states those of the random operators too."""
    _follow_set_seed()
    _follow_default_generator()


def _follow_set_seed() -> None:
    """Make `mindspore.set_seed` seed the random operators.

    MindSpore has no hook for that. `set_seed` resets the seeds of its own kernels through this one function, after it
    has handed the seed to `mindspore.dataset`.
    """
    seeds: Any = importlib.import_module("mindspore.common.seed")  # mindspore.common has a function of that name
    reset_kernels = seeds._reset_op_seed

    def reset() -> None:
        reset_kernels()
        manual_seed(ms.dataset.config.get_seed())

    seeds._reset_op_seed = reset


class _InPyNative:
    """A function that PyNative mode calls in place of a method. Graphs are compiled with the method."""

    def __init__(self, function: Callable[..., Any], method: Callable[..., Any]) -> None:
        self.function = function
        # As in bridge/operator.py: MindSpore's compiler takes the instance's __call__, Python the class's.
        self.__dict__["__call__"] = method
        self.__dict__["__ms_class__"] = True

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def _follow_default_generator() -> None:
    """Make `mindspore.manual_seed`, `seed`, `get_rng_state` and `set_rng_state` mean the random operators too.

    MindSpore has no hook for that. These functions, which `recompute` and others import by name, call methods of the
    default generator. A state of MindSpore's is followed by those of PyTorch's generators.
    """
    seed_own, draw_seed = default_generator.manual_seed, default_generator.seed
    get_own, set_own = default_generator.get_state, default_generator.set_state

    def seed(number: int) -> Generator:
        found = seed_own(number)
        manual_seed(number)
        return found

    def seed_by_chance() -> int:
        number = draw_seed()
        manual_seed(number)
        return number

    def get_state() -> ms.Tensor:
        _pynative_executor.sync()
        states = [torch.get_rng_state()]
        if _draws_on_gpu():
            states.append(torch.cuda.get_rng_state(devices.torch_name("GPU")))
        return ms.Tensor(np.concatenate([get_own().asnumpy(), *(state.numpy() for state in states)]))

    def set_state(state: ms.Tensor) -> None:
        _pynative_executor.sync()
        set_own(state[:_OWN_SIZE])
        drawn = torch.from_numpy(state.asnumpy()[_OWN_SIZE:].copy())
        if drawn.numel() == 0:
            return  # MindSpore's state only: it was taken where the bridge was not imported, or in a graph
        on_host = torch.get_rng_state().numel()
        torch.set_rng_state(drawn[:on_host])
        if drawn.numel() > on_host and _draws_on_gpu():
            torch.cuda.set_rng_state(drawn[on_host:], devices.torch_name("GPU"))

    for name, function in (
        ("manual_seed", seed), ("seed", seed_by_chance), ("get_state", get_state), ("set_state", set_state)
    ):  # fmt: skip
        setattr(default_generator, name, _InPyNative(function, getattr(default_generator, name)))
    _take_longer_states()


def _take_longer_states() -> None:
    """Make any other generator of MindSpore's take its part of the default one's state."""
    set_own = Generator.set_state

    def set_state(self, state):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        set_own(self, state[:_OWN_SIZE])

    Generator.set_state = set_state


def _draws_on_gpu() -> bool:
    return devices.target() == "GPU" and devices.has_cuda_set()
