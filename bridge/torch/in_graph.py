"""The call of one of PyTorch's functions in graph mode, where its arguments are marks instead of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import torch

from bridge.call.arguments import Bound
from bridge.op import dtypes
from bridge.primitive.graph_calls import Call, GraphNumber, GraphTensor, Item
from bridge.torch.tracing import OneCall, filled


class Marks:
    """The tensors among the arguments of a call in a graph.

    Attributes:
        tensors: in order.
        known: whether all shapes and numbers are known.
    """

    def __init__(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.tensors: list[GraphTensor] = []
        self.known = True
        self._args, self._kwargs = self._described(args), self._described(kwargs)

    def _described(self, value: Any) -> Any:
        """A function of the tensors that PyTorch is called with, which gives the value with these."""
        if isinstance(value, GraphTensor):
            self.tensors.append(value)
            self.known &= all(size >= 0 for size in value.shape)
            position = len(self.tensors) - 1
            return lambda tensors: tensors[position]
        if isinstance(value, GraphNumber):
            self.known = False
        if isinstance(value, (list, tuple)):
            items = [self._described(item) for item in value]
            return lambda tensors: tuple(item(tensors) for item in items)
        if isinstance(value, dict):
            pairs = {key: self._described(item) for key, item in value.items()}
            return lambda tensors: {key: item(tensors) for key, item in pairs.items()}
        found = dtypes.to_torch(value) if isinstance(value, ms.dtype.Type) else value
        return lambda tensors: found

    @property
    def specs(self) -> list[Any]:
        return [(tuple(tensor.shape), dtypes.to_torch(tensor.dtype)) for tensor in self.tensors]

    def with_tensors(self, tensors: Sequence[Any]) -> tuple[Any, Any]:
        return self._args(tensors), self._kwargs(tensors)


def traced(found: OneCall, tensors: Sequence[GraphTensor], call: Callable[[Bound], Any]) -> Any:
    """The expression of a function that comes to one call.

    Args:
        tensors: the function's.
        call: gives the expression of a bound call.
    """
    if found.op is None or found.text is None:
        return filled(found.form, (), tensors, _constant)
    bound = Bound(found.op, [tensors[i] for i in found.inputs], found.text, True)
    made = call(bound)
    return made if found.same else filled(found.form, _Items(made, found.op.single), tensors, _constant)


class _Items(Sequence[Any]):
    """The tensors that a call in a graph gives, one after the other."""

    def __init__(self, made: Any, single: bool) -> None:
        self._made, self._single = made, single

    def __len__(self) -> int:
        raise TypeError("how many there are is known when the graph is compiled")

    def __getitem__(self, position: Any) -> Any:
        if isinstance(self._made, Call):
            return self._made if self._single else Item(self._made, position)
        return flat(self._made)[position]


def flat(made: Any) -> list[Any]:
    return [item for each in made for item in flat(each)] if isinstance(made, (list, tuple)) else [made]


def _constant(value: Any) -> Any:
    return dtypes.to_mindspore(value) if isinstance(value, torch.dtype) else value
