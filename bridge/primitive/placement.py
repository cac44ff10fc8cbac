"""Where tensors are: on MindSpore's device, whichever name somebody gives it."""

from __future__ import annotations

from typing import Any

import torch

from bridge.op import devices
from bridge.primitive.graph_calls import GraphTensor


def check_device(name: str, value: Any) -> None:
    """Refuse a device, by PyTorch's name or MindSpore's, that is not MindSpore's.

    Args:
        name: of the function that is given it.
    """
    if isinstance(value, GraphTensor):  # `x.device`
        raise ValueError(f"{name}: a graph does not know the device of a tensor: leave device= out, it is MindSpore's")
    if value == "CPU":  # `x.device` of a tensor that has not been on MindSpore's device yet, whichever that is
        return
    current = torch.device(devices.torch_name(devices.target()))
    asked = devices.of_torch(value)
    if asked.type != current.type or (asked.type == "cuda" and asked.index not in (None, current.index)):
        raise ValueError(f"{name}: device {value} is not MindSpore's device, which is {current}")
