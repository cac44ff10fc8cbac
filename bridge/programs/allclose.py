"""`torch.allclose`, whose kernel asks for an answer past all modes, as a question that a graph takes."""

from __future__ import annotations

from typing import Any

import torch

from bridge.programs.replaced import Replacement


def _allclose(
    input: torch.Tensor, other: torch.Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Any:
    return bool(torch.isclose(input, other, rtol, atol, equal_nan).all())


ALLCLOSE = [Replacement(holder, "allclose", _allclose) for holder in (torch, torch.Tensor)]
