"""The learning rates of PyTorch's groups, as MindSpore's optimizer has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mindspore as ms
import numpy as np
import torch

from bridge import _mindspore


class Rates:
    """Learning rates that a step takes.

    Args:
        optimizer: MindSpore's.
        torch_optimizer: PyTorch's.
        schedules: for each group the position of its schedule of MindSpore's, or None.
        follows: for each group whether it has the rate that MindSpore's optimizer holds.
        rate: that rate, as PyTorch has it.
    """

    def __init__(
        self,
        optimizer: ms.nn.Optimizer,
        torch_optimizer: torch.optim.Optimizer,
        schedules: Sequence[int | None],
        follows: Sequence[bool],
        rate: float,
    ) -> None:
        self._optimizer = optimizer
        self._torch_optimizer = torch_optimizer
        self._schedules = schedules
        self._follows = follows
        self._before = float(np.float32(rate))

    def held(self) -> ms.Parameter | None:
        """What holds the rate, if MindSpore has no schedules."""
        return None if self._optimizer.dynamic_lr else self._optimizer.learning_rate

    def holders(self) -> dict[str, ms.Parameter]:
        """Where that is found: the dictionary itself."""
        return _mindspore.parameters_in(self._optimizer)

    def set(self, rates: Sequence[float], number: Callable[[ms.Tensor], float]) -> None:
        """Give PyTorch's groups the rates that MindSpore has: of schedules, or what a callback has set.

        The latter is no input of a graph: MindSpore would bring it to the GPU, and to read it there waits for the
        gradients.

        Args:
            rates: of the schedules.
            number: reads the number in a tensor.
        """
        held, groups = self.held(), self._torch_optimizer.param_groups
        if held is None:
            for group, schedule in zip(groups, self._schedules, strict=True):
                if schedule is not None:
                    group["lr"] = rates[schedule]
            return
        rate = number(held)
        if rate != self._before:
            self._before = rate
            for group, follows in zip(groups, self._follows, strict=True):
                if follows:
                    group["lr"] = rate
