"""What a gradient has to be: there where it is needed, and of the shape and dtype of its tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms

from bridge.call.arguments import TensorMark
from bridge.op import dtypes
from bridge.op.encoding import Slot
from bridge.op.schema import label


def is_floating(dtype: Any) -> bool:
    """Whether a tensor of one of MindSpore's dtypes could have a gradient."""
    torch_dtype = dtypes.to_torch(dtype)
    return torch_dtype.is_floating_point or torch_dtype.is_complex


def tensor_names(values: Mapping[str, Any]) -> list[str]:
    """What errors call a kernel's tensors: their arguments, "xs[1]" in a list."""

    def names(name: str, value: Any) -> list[str]:
        if isinstance(value, list):
            return [one for i, item in enumerate(value) for one in names(f"{name}[{i}]", item)]
        return [name] if isinstance(value, Slot) else []

    return [one for name, value in values.items() for one in names(name, value)]


def no_gradient(name: str) -> str:
    """The error of a kernel without a gradient."""
    return f"{label(name)} has no gradient: declare one with gradient="


def missing_gradient(name: str, tensor: str) -> str:
    """The error of a tensor that a gradient line says nothing of."""
    return f"{label(name)} has no gradient for {tensor!r}: give one in gradient=, or say `not_differentiable` there"


def check_gradients(name: str, names: Sequence[str], gradients: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Raise an error unless there is a gradient, or None, for each input, of its shape and dtype.

    Args:
        name: the kernel.
        names: what its tensors are called.
        gradients, inputs: tensors; in graph mode, what is known of them.
    """
    if len(gradients) != len(inputs):
        raise ValueError(
            f"{label(name)}: its gradient gave {len(gradients)} gradient(s), but the kernel has {len(inputs)} tensor(s)"
        )
    for tensor, gradient, x in zip(names, gradients, inputs, strict=True):
        if gradient is None:
            continue
        is_tensor = isinstance(gradient, (ms.Tensor, TensorMark))
        if not is_tensor:
            raise TypeError(
                f"{label(name)}: its gradient function returned {type(gradient).__name__} for {tensor!r}, not a Tensor "
                "or None"
            )
        (shape, dtype), (expected, expected_dtype) = ((one.shape, one.dtype) for one in (gradient, x))
        if not _may_be_equal(shape, expected) or dtype != expected_dtype:
            raise ValueError(
                f"{label(name)}: the gradient of {tensor!r} is {dtype} {tuple(shape)}, but the tensor is "
                f"{expected_dtype} {tuple(expected)}"
            )


def _may_be_equal(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes, of which dimensions (-1) or the rank (a single -2) may be unknown, can be the same."""
    if -2 in one or -2 in other:
        return True
    return len(one) == len(other) and all(a == b or a < 0 or b < 0 for a, b in zip(one, other, strict=True))
