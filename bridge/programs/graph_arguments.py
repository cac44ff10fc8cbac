"""The arguments of a program in a graph."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import mindspore as ms
import torch

from bridge.op import dtypes
from bridge.primitive.graph_calls import GraphNumber, GraphTensor
from bridge.programs.calls import Refusal
from bridge.programs.capture import Spec
from bridge.programs.tree import to_torch_leaf


def spec_of(tensor: GraphTensor, requires_grad: bool) -> Spec:
    """What a program takes for a tensor of the graph; -1 is a size that only the run tells."""
    dtype = dtypes.to_torch(tensor.dtype)
    return Spec(tuple(tensor.shape), dtype, requires_grad and (dtype.is_floating_point or dtype.is_complex))


class Arguments:
    """The arguments of a call in a graph, which holds its tensors apart.

    Attributes:
        tensors: the graph's.
        known: positional and keyword arguments, with places for these tensors.
    """

    def __init__(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.tensors: list[GraphTensor] = []
        self.known = self._described(args), self._described(kwargs)

    def _described(self, value: Any) -> Any:
        if isinstance(value, GraphTensor):
            self.tensors.append(value)
            return _Place(len(self.tensors) - 1)
        if isinstance(value, GraphNumber):
            raise Refusal("a program in a graph takes numbers that are constants: this one is known only when it runs")
        if isinstance(value, (list, tuple)):
            return type(value)(self._described(item) for item in value)
        if isinstance(value, dict):
            return {key: self._described(item) for key, item in value.items()}
        if dataclasses.is_dataclass(value) and _has_tensor(value):
            raise Refusal(
                f"a graph takes no tensors in a dataclass, as {type(value).__name__}: MindSpore passes those in "
                "tuples, lists and dictionaries on"
            )
        if isinstance(value, torch.Tensor):
            warnings.warn(
                "a tensor of PyTorch's that a program in a graph is given is a constant of that graph, which MindSpore "
                "compiles again for another one: mindspore.Tensor(x.numpy()) is an argument",
                stacklevel=1,
            )
        return to_torch_leaf(value)

    def specs(self, require_gradients: bool) -> list[Spec]:
        """The tensors' specs. PyTorch chooses kernels by what requires a gradient: matmul's, for one."""
        found: list[Spec] = []
        for tensor in self.tensors:
            if -2 in tensor.shape:
                raise Refusal(f"a program in a graph needs known ranks, and that of {self.path(len(found))} is unknown")
            found.append(spec_of(tensor, require_gradients))
        return found

    def may_be_one(self) -> bool:
        """Whether the call may have been given one tensor in two places."""
        known = [tensor.known_as for tensor in self.tensors]
        return len(set(known)) < len(known)

    def path(self, tensor: int) -> str:
        """Where in the call a tensor stands."""
        path = self.tensors[tensor].path[1:]
        return ".".join(str(part if not isinstance(part, int) or part >= 0 else -1 - part) for part in path)

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        """Positional and keyword arguments with these tensors."""

        def filled(value: Any) -> Any:
            if isinstance(value, _Place):
                return tensors[value.number]
            if isinstance(value, (list, tuple)):
                return type(value)(filled(item) for item in value)
            if isinstance(value, dict):
                return {key: filled(item) for key, item in value.items()}
            return value

        args, kwargs = self.known
        return tuple(filled(item) for item in args), {key: filled(item) for key, item in kwargs.items()}


def _has_tensor(value: Any) -> bool:
    """Whether there is one of MindSpore's tensors in dataclasses and containers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(_has_tensor(getattr(value, field.name, None)) for field in dataclasses.fields(value))
    if isinstance(value, (list, tuple, dict)):
        return any(map(_has_tensor, value.values() if isinstance(value, dict) else value))
    return isinstance(value, ms.Tensor)


class _Place:
    """Stands for a tensor among the arguments."""

    def __init__(self, number: int) -> None:
        self.number = number
