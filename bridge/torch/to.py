"""`to` of PyTorch's tensors, which alone takes a device by its position."""

from __future__ import annotations

from typing import Any

import torch

from bridge.primitive.placement import check_device
from bridge.torch.function import Function


class To(Function):
    """See Function."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*_on_mindspores_device(args), **kwargs)

    def plan_in_graph(self, args: list[Any], kwargs: dict[str, Any], product: Any = None, lines: str = "") -> Any:
        return super().plan_in_graph(_on_mindspores_device(args), kwargs, product, lines)


def _on_mindspores_device(args: Any) -> Any:
    """The arguments without the device, if that is MindSpore's."""
    if len(args) < 2 or not isinstance(args[1], (str, int, torch.device)):
        return args
    check_device("torch.Tensor.to", args[1])
    return type(args)((args[0], None, *args[2:]))
