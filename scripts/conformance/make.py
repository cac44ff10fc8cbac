"""What samples are made of: random tensors of the dtype under test, and calls with them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Make:
    """Makes the tensors of a sample in the dtype under test."""

    dtype: torch.dtype

    def __call__(self, *shape: int) -> torch.Tensor:
        """Random values, of both signs where the dtype has them."""
        if self.dtype == torch.bool:
            return torch.randint(0, 2, shape).bool()
        if self.dtype.is_floating_point or self.dtype.is_complex:
            return torch.randn(shape, dtype=torch.complex64 if self.dtype.is_complex else torch.float32).to(self.dtype)
        return torch.randint(0 if self.dtype.is_signed is False else -9, 10, shape).to(self.dtype)

    def positive(self, *shape: int) -> torch.Tensor:
        """Random values in (0, 1), or small positive integers."""
        if self.dtype.is_floating_point or self.dtype.is_complex:
            return (torch.rand(shape) * 0.8 + 0.1).to(self.dtype)
        return torch.randint(1, 5, shape).to(self.dtype)

    def many(self, count: int = 3) -> list[torch.Tensor]:
        """Tensors of different shapes, as the _foreach operators take."""
        return [self.positive(3 + i, 2) for i in range(count)]

    @staticmethod
    def ints(*shape: int, low: int = 1, high: int = 9) -> torch.Tensor:
        return torch.randint(low, high, shape)

    @staticmethod
    def bools(*shape: int) -> torch.Tensor:
        return torch.randint(0, 2, shape).bool()


def call(*args: Any, **kwargs: Any) -> Arguments:
    return args, kwargs
