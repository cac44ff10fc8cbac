"""A step of an optimizer in a graph."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import mindspore as ms
import torch

from bridge.optim.left_out import without_zeros
from bridge.optim.rates import Rates
from bridge.optim.repeated_step import RepeatedStep
from bridge.primitive import direct
from bridge.primitive.tensors import float_at, is_on_gpu, view_at
from bridge.programs.sharing import Sharing


class Launched:
    """What the kernel of a step calls. Once a launch does what an earlier one did, C++ repeats it without Python.

    Args:
        repeated: takes the steps.
        sharing: the optimizer's parameters, and MindSpore's.
        rates: the optimizer's.
        schedules: how many learning rates of schedules it gets.
        has_gradient: for each parameter whether it gets a gradient, too.
        left_out: the positions of the parameters for which the programs that differentiate find none.

    Attributes:
        order: of the addresses, among rates, gradients and parameters.
        specs: the shapes and dtypes of these.
    """

    def __init__(
        self,
        repeated: RepeatedStep,
        sharing: Sharing,
        rates: Rates,
        schedules: int,
        has_gradient: Sequence[bool],
        left_out: Sequence[int],
    ) -> None:
        self.repeated = repeated
        self.sharing = sharing
        self.rates = rates
        self.schedules = schedules
        self.has_gradient = has_gradient
        self.inputs = schedules + sum(has_gradient)
        self._left_out = [*left_out]
        self._trained = sharing.state.are_trained()  # another graph is compiled when one is frozen or set free
        self.order: list[int] = []
        self.specs: list[Any] = []
        self._addresses: tuple[int, ...] = ()
        self._views: list[torch.Tensor] = []
        self._met: Any = None  # of the last launch: what another one has to have too, to be repeated

    def launch(self, addresses: tuple[int, ...]) -> dict[str, Any] | None:
        """Take a step with the gradients, rates and parameters at these addresses (see Callee)."""
        tensors = self._tensors(addresses)
        self.rates.set([float(rate) for rate in tensors[: self.schedules]], _number_in_launch)
        given = iter(tensors[self.schedules : self.inputs])
        gradients = [next(given) if has_gradient else None for has_gradient in self.has_gradient]
        gradients = without_zeros(of_trained(self._trained, gradients), self._left_out)
        # One that is not zero comes from operators beside the programs, and may be zero at times.
        self._left_out = [position for position in self._left_out if gradients[position] is None]
        elsewhere = self._move(tensors[self.inputs :])
        try:
            self.repeated.take(gradients)
        finally:
            for parameter, data in elsewhere:
                parameter.data = data
        return None if elsewhere else self._again(gradients)

    def _again(self, gradients: Sequence[torch.Tensor | None]) -> dict[str, Any] | None:
        """What C++ needs to take this step again, wherever the gradients are, if it is known and the launch before was
        like this one. With schedules none is."""
        written, held = self.repeated.written(), self.rates.held()
        places = [direct.address(parameter) for parameter in held]
        if written is None or self.schedules or any(map(is_on_gpu, places)):
            return None
        values = [float_at(place) for place in places]
        addresses = [
            address if position >= self.inputs else None
            for address, position in zip(self._addresses, self.order, strict=True)
        ]
        own = addresses, places, values
        if own != self._met:
            self._met = own
            return None
        numbers = itertools.count()  # of the gradients
        positions = [self.order.index(next(numbers)) if given else None for given in self.has_gradient]
        return {
            "addresses": addresses,
            "gradients": gradients,
            "positions": positions,
            "zeros": [
                (positions[i], self.sharing.tensors[i].nbytes) for i in self._left_out if positions[i] is not None
            ],
            "parameters": self.sharing.tensors,
            "containers": [self.sharing.tensors, self.rates.holders()],
            "questions": [
                *((direct.address, (parameter,), place) for parameter, place in zip(held, places, strict=True)),
                *((float_at, (place,), value) for place, value in zip(places[1:], values[1:], strict=True)),
            ],
            "rate": places[0],
            "step": written.address,
            "owner": written,
        }

    def _tensors(self, addresses: tuple[int, ...]) -> list[torch.Tensor]:
        """PyTorch's views, those of the last launch where the addresses are its."""
        if addresses != self._addresses:
            found: list[Any] = [None] * len(self.order)
            for address, position in zip(addresses, self.order, strict=True):
                found[position] = view_at(address, *self.specs[position])
            self._views, self._addresses = found, addresses
        return self._views

    def _move(self, views: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Have parameters be where the graph has them. Gives those that were elsewhere, with what they were."""
        before = []
        for parameter, view in zip(self.sharing.tensors, views, strict=True):
            if parameter.data_ptr() != view.data_ptr():
                before.append((parameter, parameter.data))
                parameter.data = view
        return before


def of_trained(are_trained: Sequence[bool], gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """The gradients without those of what is not trained."""
    return [gradient if is_trained else None for is_trained, gradient in zip(are_trained, gradients, strict=True)]


def _number_in_launch(rate: ms.Tensor) -> float:
    """Waits for a GPU if the number is there, and not for the graph, as `item` would for ever."""
    return float_at(direct.address(rate))
