"""`1.0 / float(self.num_batches_tracked)`: the momentum of batch norm with `momentum=None`, which each run computes.

PyTorch's Python reads the number of batches from a buffer. In a program it stays a tensor, on the CPU, where its
arithmetic is that of Python's floats. Batch norm takes the number out of it when the program runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import batchnorm

from bridge.programs.calls import Number, Refusal
from bridge.programs.replaced import Replacement

# What PyTorch's operators call it.
_NAMES = ("momentum", "exponential_average_factor")
_POSITION = 6  # in the arguments of torch.batch_norm
_batch_norm: Any = torch.batch_norm


def _float(value: Any) -> Any:
    """What `float` gives in the module of PyTorch's batch norm."""
    return value.to("cpu", torch.float64) if isinstance(value, torch.Tensor) else float(value)


class RunTimeMomentum:
    """The momentum of the call of batch norm that is being recorded.

    Args:
        register: gives the register of a tensor.
    """

    def __init__(self, register: Callable[[torch.Tensor], int]) -> None:
        self._register = register
        self._now: Number | None = None
        self._is_put = False

    def replacements(self) -> list[Replacement]:
        return [Replacement(batchnorm, "float", _float), Replacement(torch, "batch_norm", self._call)]

    def put(self, func: Any, arguments: list[Any]) -> None:
        """Put it into the arguments of a call that has one."""
        if self._now is None:
            return
        for i, argument in enumerate(func._schema.arguments):
            if argument.name in _NAMES:
                arguments[i] = self._now
                self._is_put = True

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """torch.batch_norm, whose momentum may be a tensor."""
        momentum = args[_POSITION] if len(args) > _POSITION else None
        if not isinstance(momentum, torch.Tensor) or momentum.requires_grad:
            return _batch_norm(*args, **kwargs)
        self._now, self._is_put = Number(self._register(momentum)), False
        try:
            result = _batch_norm(*args[:_POSITION], 0.0, *args[_POSITION + 1 :], **kwargs)
        finally:
            self._now = None
        if not self._is_put:
            raise Refusal("PyTorch's batch norm takes no momentum here, and momentum=None needs one: name a number")
        return result
