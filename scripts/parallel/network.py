"""What is trained: a small convolutional module on scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from sklearn.datasets import load_digits

LEARNING_RATE = 0.05
MOMENTUM = 0.9
SEED = 3


class Network(torch.nn.Module):
    """Images (n, 1, 8, 8) to scores (n, 10).

    Args:
        per_rank: whether it has what each rank does by itself: batch norm's statistics and dropout's draws. Without,
            ranks together compute what one process computes with the whole batch.
    """

    def __init__(self, per_rank: bool) -> None:
        super().__init__()
        keep = torch.nn.Identity
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3, padding=1),
            torch.nn.BatchNorm2d(16) if per_rank else keep(),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Dropout(0.2) if per_rank else keep(),
        )
        self.head = torch.nn.Sequential(torch.nn.Linear(256, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images))


def network(per_rank: bool) -> Network:
    """With the same initial weights in every process."""
    torch.manual_seed(SEED)
    return Network(per_rank)


class Shard:
    """A rank's part of each batch of the digits.

    Args:
        batch: images in a batch of all ranks together; `ranks` divides it.
        steps: how many batches.
        rank, ranks: which part of how many.
    """

    def __init__(self, batch: int, steps: int, rank: int = 0, ranks: int = 1) -> None:
        if batch % ranks:
            raise ValueError(f"{ranks} workers do not divide a batch of {batch} images")
        digits = load_digits()
        self._images = (digits.images[:, None] / 16).astype(np.float32)
        self._labels = digits.target.astype(np.int32)
        order = np.random.default_rng(SEED).integers(0, len(self._labels), (steps, ranks, batch // ranks))
        self._order = order[:, rank]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for chosen in self._order:
            yield self._images[chosen], self._labels[chosen]

    def __len__(self) -> int:
        return len(self._order)
