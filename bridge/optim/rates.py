"""The learning rates of PyTorch's groups, as MindSpore's optimizer has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mindspore as ms
import numpy as np
import torch

from bridge import _mindspore
from bridge.op import devices
from bridge.primitive import direct
from bridge.primitive.tensors import is_on_gpu


class Rates(_mindspore.CompiledAsMethod):
    """Learning rates that a step takes. What a call does is for `Optimizer.get_lr`.

    Args:
        optimizer: MindSpore's.
        torch_optimizer: PyTorch's.
        schedules: the number of MindSpore's schedules.
        sources: for each group the position of what has its rate: of the schedules, or after them of `held()`.
        own: the Parameters that have the rates of single groups.
        values: of `held()`, as PyTorch has them.
    """

    def __init__(
        self,
        optimizer: ms.nn.Optimizer,
        torch_optimizer: torch.optim.Optimizer,
        schedules: int,
        sources: Sequence[int],
        own: Sequence[ms.Parameter],
        values: Sequence[float],
    ) -> None:
        self._optimizer = optimizer
        self._torch_optimizer = torch_optimizer
        self._schedules = schedules
        self._sources = sources
        self._own = own
        self._before = [float(np.float32(float(value))) for value in values]

    def held(self) -> list[ms.Parameter]:
        """What holds rates that no schedule of MindSpore's gives: the optimizer's, if it is one, and single groups'."""
        if len(self._own) == len(self._before):
            return [*self._own]
        return [self._optimizer.learning_rate, *self._own]

    def holders(self) -> dict[str, ms.Parameter]:
        """Where these are found: the dictionary itself."""
        return _mindspore.parameters_in(self._optimizer)

    def set(self, rates: Sequence[float], number: Callable[[ms.Tensor], float]) -> None:
        """Give PyTorch's groups the rates that MindSpore has: of schedules, and what a callback has set.

        The latter are no inputs of a graph: MindSpore would bring them to the GPU, and to read one there waits for the
        gradients.

        Args:
            rates: of the schedules.
            number: reads the number in a tensor.
        """
        for position, rate in enumerate(rates):
            for group in self._groups(position):
                group["lr"] = rate
        self.follow(number)

    def follow(self, number: Callable[[ms.Tensor], float]) -> None:
        """Give PyTorch's groups what a callback has set."""
        for place, held in enumerate(self.held()):
            rate = number(held)
            if rate != self._before[place]:
                self._before[place] = rate
                for group in self._groups(self._schedules + place):
                    group["lr"] = rate

    def show(self) -> None:
        """Have the Parameters hold what PyTorch's groups have, as PyTorch's schedules set it."""
        self.follow(item_of)
        for place, held in enumerate(self.held()):
            rates = self._in_groups(place)
            if len(rates) == 1 and rates != {self._before[place]}:
                (self._before[place],) = rates
                _give(held, ms.Tensor(self._before[place], ms.float32))

    def __call__(self, scheduled: Sequence[ms.Tensor]) -> tuple[ms.Tensor, ...] | None:
        """The rate of each parameter's next step, if groups that share a Parameter have other rates. Otherwise None,
        and the Parameters hold them.

        Args:
            scheduled: the rates that the schedules give.
        """
        self.show()
        if all(len(self._in_groups(place)) < 2 for place in range(len(self._before))):
            return None
        groups = zip(self._torch_optimizer.param_groups, self._sources, strict=True)
        rates = [
            (scheduled[source] if source < self._schedules else ms.Tensor(float(group["lr"]), ms.float32), group)
            for group, source in groups
        ]
        return tuple(rate for rate, group in rates for _ in group["params"])

    def _call_in_graph(self, scheduled):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return None

    def _groups(self, source: int) -> Iterator[dict[str, Any]]:
        groups = zip(self._torch_optimizer.param_groups, self._sources, strict=True)
        return (group for group, own in groups if own == source)

    def _in_groups(self, place: int) -> frozenset[float]:
        """The rates of the groups that a Parameter holds them for, as it has them."""
        groups = self._groups(self._schedules + place)
        return frozenset(float(np.float32(float(group["lr"]))) for group in groups if "lr" in group)


def _give(held: ms.Parameter, rate: ms.Tensor) -> None:
    """Have a Parameter hold a rate, in the memory that a graph knows. What is on the host beside a GPU stays there."""
    if devices.target() == "GPU" and not is_on_gpu(direct.address(held)):
        held.set_data(rate)  # no graph has it: it would be on the GPU
    else:
        ms.ops.assign(held, rate)


def item_of(tensor: ms.Tensor) -> float:
    return float(tensor.item())
