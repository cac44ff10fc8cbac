"""PyTorch's Parameter and Buffer, which make MindSpore's Parameters."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import torch


class _MakesParameters(type):
    """The class of classes whose instances are Parameters of MindSpore's."""

    def __new__(mcs, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> Any:
        if bases:
            raise TypeError(f"{name} cannot derive from {bases[0].__name__}, which makes MindSpore's Parameters")
        return super().__new__(mcs, name, bases, members)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, ms.Parameter) and (cls is Parameter or not instance.requires_grad)


class Parameter(metaclass=_MakesParameters):
    """MindSpore's Parameter, whose name is that of the attribute it becomes.

    Args:
        data: MindSpore's tensor.
        requires_grad: whether it is trained.

    Raises:
        TypeError: the tensor is PyTorch's.
    """

    def __new__(cls, data: Any, requires_grad: bool = True) -> ms.Parameter:  # type: ignore[misc]
        if isinstance(data, torch.Tensor):
            raise TypeError("Parameter takes MindSpore's tensor, as bridge.torch makes it, and was given PyTorch's")
        return ms.Parameter(data, requires_grad=requires_grad)


class Buffer(metaclass=_MakesParameters):
    """A tensor that a layer keeps and nothing trains: MindSpore's Parameter without a gradient.

    Args:
        data: MindSpore's tensor.
    """

    def __new__(cls, data: Any) -> ms.Parameter:  # type: ignore[misc]
        return ms.Parameter(data, requires_grad=False)
