"""A module for TorchScript, which takes no annotations as text."""

import torch


class Counting(torch.nn.Module):
    n: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n = self.n + 1
        return x * self.n
