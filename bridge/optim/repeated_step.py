"""A step of PyTorch's optimizer without its Python, once two steps were the same calls (recording.py)."""

from __future__ import annotations

import ctypes
import functools
import itertools
import operator
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import optimizer as _optimizer

from bridge.op.devices import LIBRARIES
from bridge.optim.recording import Recording

_RECORDINGS = 16  # of an optimizer: one whose steps differ again and again runs as PyTorch has it

Gradients = Sequence[torch.Tensor | None]


class RepeatedStep:
    """Takes the steps of an optimizer.

    Args:
        optimizer: PyTorch's.
        parameters: the optimizer's, in the order of the gradients that the steps are given. None is the gradient of
            one that is not trained.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]) -> None:
        self._optimizer = optimizer
        self._parameters = parameters
        self._left = _RECORDINGS
        self._before: tuple[_Surroundings, Recording] | None = None
        self._known: tuple[_Surroundings, _Written] | None = None

    def again(self, gradients: Gradients) -> bool:
        """Take a step, if it is known by now what that calls. If it is not, nothing is done."""
        if self._known is None:
            return False
        surroundings, written = self._known
        if surroundings.are_those_of(self._optimizer, gradients) and written(
            [gradient for gradient in gradients if gradient is not None],
            [group["lr"] for group in self._optimizer.param_groups],
        ):
            return True
        self._known = None
        return False

    def first(self, gradients: Gradients) -> None:
        """Take a step in PyTorch's Python. The parameters have the gradients."""
        surroundings = _Surroundings(self._optimizer, gradients)
        if self._left == 0 or not surroundings.are_all(self._optimizer):
            self._optimizer.step()
            return
        self._left -= 1
        given = [gradient for gradient in gradients if gradient is not None]
        recording = Recording(given, [*self._parameters, *surroundings.tensors()])
        recording.run(self._optimizer.step, self._optimizer.param_groups)
        before, self._before = self._before, None
        if recording.lost or not surroundings.are_those_of(self._optimizer, gradients):
            return
        if before is not None and surroundings == before[0] and recording.is_as(before[1]):
            self._known = surroundings, _Written(recording, given)
        else:
            self._before = surroundings, recording


class _Written:
    """A step in C++."""

    def __init__(self, recording: Recording, gradients: list[torch.Tensor]) -> None:
        self._step = _library().ms_ext_repeated_step(recording.parts, gradients)
        weakref.finalize(self, _library().ms_ext_free_repeated_step, self._step)

    def __call__(self, gradients: list[torch.Tensor], rates: list[float]) -> bool:
        """Take it, if the gradients are like the first ones."""
        return _library().ms_ext_repeat_step(self._step, gradients, rates) == 1


class _Surroundings:
    """What a step's calls follow from, besides the learning rates and what is in the tensors."""

    def __init__(self, optimizer: torch.optim.Optimizer, gradients: Gradients) -> None:
        self.trained = [gradient is not None for gradient in gradients]
        self.options = [[option for key, option in group.items() if key != "lr"] for group in optimizer.param_groups]
        self.types = [list(map(type, group.values())) for group in optimizer.param_groups]
        self.state = list(itertools.chain.from_iterable(map(dict.values, optimizer.state.values())))
        self.step = vars(optimizer).get("step"), type(optimizer).step
        self.has_hooks = bool(
            optimizer._optimizer_step_pre_hooks
            or optimizer._optimizer_step_post_hooks
            or _optimizer._global_optimizer_pre_hooks
            or _optimizer._global_optimizer_post_hooks
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Surroundings)
            and self.trained == other.trained
            and self.types == other.types
            and self.options == other.options
            and self.step == other.step
            and self.has_hooks == other.has_hooks
            and len(self.state) == len(other.state)
            and all(map(operator.is_, self.state, other.state))
        )

    def are_those_of(self, optimizer: torch.optim.Optimizer, gradients: Gradients) -> bool:
        return self == _Surroundings(optimizer, gradients)

    def tensors(self) -> list[torch.Tensor]:
        return [value for value in self.state if isinstance(value, torch.Tensor)]

    def are_all(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether a step's calls follow from nothing else. The classes of torch.optim are known for it; others may keep
        things elsewhere."""
        own_step, _ = self.step
        return (
            f"{type(optimizer).__module__}.".startswith("torch.optim.")
            and (own_step is None or hasattr(own_step, "_wrapped_by_lr_sched"))
            and all(type(group["lr"]) is float for group in optimizer.param_groups)
            and not any(isinstance(option, torch.Tensor) for options in self.options for option in options)
            and not self.has_hooks
        )


@functools.cache
def _library() -> Any:
    library = ctypes.PyDLL(str(LIBRARIES / "libms_ext_python.so"))  # which raises the errors that they set
    library.ms_ext_repeated_step.argtypes = [ctypes.py_object, ctypes.py_object]
    library.ms_ext_repeated_step.restype = ctypes.c_void_p
    library.ms_ext_free_repeated_step.argtypes = [ctypes.c_void_p]
    library.ms_ext_free_repeated_step.restype = None
    library.ms_ext_repeat_step.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    return library
