"""A step of PyTorch's optimizer without its Python, once two steps were the same calls (recording.py)."""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import optimizer as _optimizer

from bridge.optim.in_parts import in_parts
from bridge.optim.recording import Recording, flat
from bridge.programs.in_cpp import library

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
        self._known: tuple[_Surroundings, Written] | None = None

    def take(self, gradients: Gradients) -> None:
        """Take a step with the gradients of what is trained."""
        if self.again(gradients):
            return
        try:
            set_gradients(self._parameters, gradients)
            with in_parts():
                self.first(gradients)
        finally:
            forget_gradients(self._parameters)  # they are views of memory that MindSpore may take back

    def again(self, gradients: Gradients) -> bool:
        """Take a step, if it is known by now what that calls. If it is not, nothing is done."""
        if self._known is None:
            return False
        surroundings, written = self._known
        if written.again(gradients):
            return True
        if surroundings.are_those_of(self._optimizer, gradients):  # equal objects, maybe, in place of those before
            written.look_again()
            if written.again(gradients):
                return True
        self._known = None
        return False

    def written(self) -> Written | None:
        """The step in C++, if it is known."""
        return None if self._known is None else self._known[1]

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
            self._known = surroundings, Written(recording, gradients, self._optimizer)
        else:
            self._before = surroundings, recording


class Written:
    """A step in C++.

    Attributes:
        address: of the step. It is there as long as this object is.
    """

    def __init__(self, recording: Recording, gradients: Gradients, optimizer: torch.optim.Optimizer) -> None:
        hooks = [_optimizer._global_optimizer_pre_hooks, _optimizer._global_optimizer_post_hooks]
        self.address = library().ms_ext_repeated_step(recording.parts, [*gradients], optimizer, hooks)
        weakref.finalize(self, library().ms_ext_free_repeated_step, self.address)

    def again(self, gradients: Gradients) -> bool:
        """Take it, if the gradients are like the first ones, and the optimizer holds the objects that it held."""
        return library().ms_ext_repeat_step(self.address, [*gradients]) == 1

    def look_again(self) -> None:
        """The optimizer holds other objects, which are equal."""
        library().ms_ext_look_at_step_again(self.address)


class _Surroundings:
    """What a step's calls follow from, besides the learning rates and what is in the tensors."""

    def __init__(self, optimizer: torch.optim.Optimizer, gradients: Gradients) -> None:
        self.trained = [gradient is not None for gradient in gradients]
        self.options = [
            leaf
            for group in optimizer.param_groups
            for key, option in group.items()
            if key != "lr"
            for leaf in flat(option)
        ]
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
            and len(self.options) == len(other.options)
            and all(map(_is_same, self.options, other.options))
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
            and not any(
                isinstance(option, torch.Tensor)
                for group in optimizer.param_groups
                for key, option in group.items()
                if key != "params"
            )
            and not self.has_hooks
        )


def _is_same(own: Any, other: Any) -> bool:
    """Whether two options are: the same tensor, or equal values of one type."""
    return own is other or (type(own) is type(other) and not isinstance(own, torch.Tensor) and bool(own == other))


def set_gradients(parameters: Sequence[torch.Tensor], gradients: Gradients) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


def forget_gradients(parameters: Sequence[torch.Tensor]) -> None:
    for parameter in parameters:
        parameter.grad = None
