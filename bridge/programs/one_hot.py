"""`torch.nn.functional.one_hot`, which makes other calls where there is no data: it compares the classes with all
numbers, and looks at none of them. With data it refuses those that are out of range."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch

from bridge.programs.calls import Call

ONE_HOT = torch.ops.aten.one_hot.default
_ARANGE = torch.ops.aten.arange.default
_UNSQUEEZE = torch.ops.aten.unsqueeze.default
_EQUAL = torch.ops.aten.eq.Tensor
_CONVERTED = torch.ops.aten._to_copy.default
_PARTS = [_ARANGE, _UNSQUEEZE, _EQUAL, _CONVERTED]


class OneHot:
    """Finds it among the calls of a run: one instruction of Python makes all of them."""

    def __init__(self) -> None:
        self._made_at: list[tuple[int, int]] = []

    def arguments(self, func: Any, arguments: Sequence[Any], calls: Sequence[Call]) -> list[Any] | None:
        """Those of the function, if it makes this call, the last of its own, after the others. None if it does not.

        Called from the mode's `__torch_dispatch__`, for each of the calls.
        """
        if func not in _PARTS:
            return None
        self._made_at = [*self._made_at[1 - len(_PARTS) :], _instruction(sys._getframe(2))]
        before = calls[1 - len(_PARTS) :]
        if func is not _CONVERTED or [call.op for call in before] != _PARTS[:-1] or len({*self._made_at}) > 1:
            return None
        numbers, classes, equal = before
        compared = [classes.results[0], numbers.results[0]]
        if equal.operands != compared or [arguments[0].number] != equal.results:
            return None
        tensor, dimension = classes.arguments
        return [tensor, numbers.arguments[0]] if dimension == -1 else None


def _instruction(frame: FrameType) -> tuple[int, int]:
    """The function that has called PyTorch, and where it is. The frame is the one that calls the mode."""
    inner: FrameType | None = frame
    while inner is not None and inner.f_globals.get("__name__", "") in ("torch._compile", "torch._dynamo.eval_frame"):
        inner = inner.f_back
    return (0, 0) if inner is None else (id(inner), inner.f_lasti)
