"""What PyTorch's own functions say when they are given MindSpore's tensors."""

from __future__ import annotations

from typing import Any, NoReturn

import mindspore as ms
import torch


def refuse_in_torch() -> None:
    """Have them name the bridge's, in place of "must be Tensor, not Tensor"."""
    ms.Tensor.__torch_function__ = classmethod(_refuse)  # type: ignore[attr-defined]


def _refuse(cls: type, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
    name = torch.overrides.resolve_name(function) or getattr(function, "__name__", str(function))
    raise TypeError(
        f"{name} is PyTorch's own, and was given MindSpore's tensor: bridge.torch and bridge.nn have the functions and "
        "layers for these, and bridge.cell makes a Cell of a module"
    )
