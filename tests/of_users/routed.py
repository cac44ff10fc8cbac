"""Modules whose rows go to parts that data chooses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


class Rows(nn.Module):
    """Something of the rows of a layer that are more than a threshold, and of those that are not."""

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, are_more = self.layer(x), x[:, 0] > 0
        return self.function(y[are_more], y[~are_more])


class Experts(nn.Module):
    """Each takes the rows that chose it. What they give is put together, too."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        parts = []
        for i, expert in enumerate(self.experts):
            row, which = torch.where(chosen == i)
            given = expert(x[row]) * weights[row, which, None]
            out = out.index_add(0, row, given)
            parts.append(given)
        return out + torch.cat(parts).sum(0)


class Asking(Experts):
    """Only experts that were chosen run."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts[:2]):
            mask = chosen == i
            if mask.any():
                out[mask] += expert(x[mask]) * weights[mask, None]
        return out


class Layers(nn.Module):
    """Layers of experts: which ones run in one follows from what ran before. Each keeps what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Asking() for _ in range(3))
        self.least: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.least = []
        for layer in self.layers:
            x = x + layer(x)
            self.least.append(x.min())
        return x * sum(self.least)


class Counted(Experts):
    """As DeepSeek's: experts that nobody chose are left out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            if counts[i] == 0:
                continue
            row, which = torch.where(chosen == i)
            out[row] += expert(x[row]) * weights[row, which, None]
        return out


def attention(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return ((a @ a.T).softmax(-1).view(-1).sum() + (a @ b.T).view(-1).mean()) * torch.cat([a, b, a]).mean(0)


class Split(nn.Module):
    """As JetMoE's: the rows of each expert lie together, and all of them are split by how many there are."""

    def __init__(self, experts: int = 3, function: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        super().__init__()
        self.gate = nn.Linear(4, experts, bias=False)
        self.inner = nn.Parameter(torch.randn(experts, 8, 4))
        self.outer = nn.Parameter(torch.randn(experts, 4, 4))
        self.function = function or torch.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).topk(2, -1)
        counts = torch.zeros(len(x), len(self.inner), device=x.device).scatter(1, chosen, 1).long().sum(0).tolist()
        order = chosen.flatten().sort(stable=True)[1]
        rows = order.div(2, rounding_mode="trunc")
        inner = self.each(x[rows], counts, self.inner)
        left, right = inner.chunk(2, -1)
        outer = self.each(self.function(left) * right, counts, self.outer)
        return x.index_add(0, rows, outer * weights.softmax(-1).flatten()[order, None])

    def each(self, rows: torch.Tensor, counts: list[int], weights: torch.Tensor) -> torch.Tensor:
        parts = rows.split(counts, dim=0)
        return torch.cat(
            [nn.functional.linear(self.function(part), own) for part, own in zip(parts, weights, strict=True)]
        )
