"""What constructors of layers and optimizers are given, as PyTorch takes it."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.op import devices, dtypes
from bridge.operator import Operator
from bridge.primitive.tensors import torch_view
from bridge.programs.cell import ModuleCell


def to_torch(value: Any) -> Any:
    """A constructor's argument for PyTorch: layers become their modules, tensors copies, operators PyTorch's.

    Raises:
        TypeError: it is a Cell that holds no PyTorch module, or computes something else than its module.
    """
    if isinstance(value, ModuleCell):
        if type(value).construct is not ModuleCell.construct:
            raise TypeError(
                f"{type(value).__name__} has its own construct, which a PyTorch layer that holds it would not call: "
                "call it beside the layer, in construct"
            )
        return value.module
    if isinstance(value, ms.nn.Cell):
        raise TypeError(
            f"{type(value).__name__} is no layer of bridge.nn, so a PyTorch layer cannot hold it: call it beside the "
            "layer, in construct"
        )
    if isinstance(value, ms.Tensor):
        _mindspore.wait()
        return torch_view(value).clone()
    if isinstance(value, Operator):
        return getattr(torch.ops.aten, value.name)
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_torch, value))
    if isinstance(value, dict):
        return type(value)((key, to_torch(item)) for key, item in value.items())
    return dtypes.to_torch(value) if isinstance(value, ms.dtype.Type) else value


def without_device(name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of the constructor `name` but `device`, which may only be where MindSpore is.

    Raises:
        TypeError: another device is asked for.
    """
    asked = kwargs.get("device")
    if asked is not None and devices.of_torch(asked).type != torch.device(devices.torch_name(devices.target())).type:
        raise TypeError(
            f"{name}: a layer is on MindSpore's device, {devices.target()}, and not on {asked!r}: leave device out and "
            "call mindspore.set_device"
        )
    return {key: value for key, value in kwargs.items() if key != "device"}
