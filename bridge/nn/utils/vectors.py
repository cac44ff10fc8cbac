"""Parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable

import mindspore as ms
import torch

from bridge.nn.utils.function import TensorFunction
from bridge.programs.sharing import Sharing
from bridge.programs.state import tensor_of


def _vector(parameters: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(parameters)


_parameters_to_vector = TensorFunction(_vector, "parameters_to_vector")


def parameters_to_vector(parameters: Iterable[ms.Tensor]) -> ms.Tensor:
    """All values, one tensor after the other."""
    return _parameters_to_vector(list(parameters))


def vector_to_parameters(vec: ms.Tensor, parameters: Iterable[ms.Parameter]) -> None:
    """Write the values of a vector into Parameters, one after the other."""
    own = list(parameters)
    tensors = [tensor_of(parameter) for parameter in own]

    def write(views: list[torch.Tensor]) -> None:
        parts = views[0][: sum(tensor.numel() for tensor in tensors)].split([tensor.numel() for tensor in tensors])
        with torch.no_grad():
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    Sharing("vector_to_parameters", own, tensors).run(write, [vec])
