"""What a gradient has to be: there where it is needed, and of the shape and dtype of its tensor."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore.ops.functional import isconstant
from mindspore.ops.primitive import constexpr

from bridge import dtypes
from bridge.schema import label


def _is_floating(dtype: Any) -> bool:
    torch_dtype = dtypes.to_torch(dtype)
    return torch_dtype.is_floating_point or torch_dtype.is_complex


def refuse_no_gradient(name: str, types: Sequence[Any]) -> None:
    """Raise RuntimeError if a result of one of these dtypes could have a gradient."""
    if any(map(_is_floating, types)):
        raise RuntimeError(f"{label(name)} has no gradient: declare one with gradient=")


def refuse_missing(name: str, sources: Sequence[int], types: Sequence[Any]) -> None:
    """Raise RuntimeError if the line says nothing of an input that could have a gradient."""
    for i, (source, dtype) in enumerate(zip(sources, types, strict=True)):
        if source == -2 and _is_floating(dtype):
            raise RuntimeError(
                f"{label(name)} has no gradient for its tensor {i}, which is {dtypes.to_torch(dtype)}: give one in "
                "gradient=, or say `not_differentiable` there"
            )


def check_gradients(name: str, gradients: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Raise ValueError unless there is a gradient for each input, of its shape and dtype.

    Both are (shape, dtype) pairs; the shape is None where it is not known.
    """
    if len(gradients) != len(inputs):
        raise ValueError(
            f"{label(name)}: its gradient gave {len(gradients)} gradient(s), but the kernel has {len(inputs)} tensor(s)"
        )
    for i, ((shape, dtype), (expected, input_dtype)) in enumerate(zip(gradients, inputs, strict=True)):
        differs = shape is not None and expected is not None and tuple(shape) != tuple(expected)
        if differs or dtype != input_dtype:
            raise ValueError(
                f"{label(name)}: the gradient of tensor {i} is {dtype} {shape}, but the tensor is {input_dtype} "
                f"{expected}"
            )


def specs(tensors: Sequence[Any]) -> list[Any]:
    found = []
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, ms.Tensor):
            raise TypeError(f"a gradient function returned {type(tensor).__name__} for tensor {i}, not a Tensor")
        found.append((tensor.shape, str(tensor.dtype)))
    return found

refuse_missing_in_graph = constexpr(refuse_missing)
refuse_no_gradient_in_graph = constexpr(refuse_no_gradient)


@constexpr
def _check_in_graph(name: str, shapes: Any, types: Any, expected_shapes: Any, expected_types: Any) -> None:
    gradients = list(zip(shapes, map(str, types), strict=True))
    check_gradients(name, gradients, list(zip(expected_shapes, map(str, expected_types), strict=True)))


def checked_in_graph(name, gradients, inputs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    """The gradients, if there is one for each input and of its shape and dtype."""
    shapes = ()
    types = ()
    for x in gradients:
        shapes = (*shapes, x.shape if isconstant(x.shape) else None)
        types = (*types, x.dtype)
    expected_shapes = ()
    expected_types = ()
    for x in inputs:
        expected_shapes = (*expected_shapes, x.shape if isconstant(x.shape) else None)
        expected_types = (*expected_types, x.dtype)
    _check_in_graph(name, shapes, types, expected_shapes, expected_types)
    return gradients
