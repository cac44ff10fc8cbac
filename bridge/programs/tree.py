"""Nested arguments and results: the tensors in them, and the rest."""
from __future__ import annotations

from typing import Any

import mindspore as ms
import torch
from torch.utils import _pytree as pytree

from bridge import dtypes

_MINDSPORE_DTYPE = type(ms.float32)


class Arguments:
    """The arguments of a call, which holds its tensors apart.

    Attributes:
        tensors: MindSpore's tensors, in order.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.tensors: list[ms.Tensor]
        if not kwargs and all(isinstance(value, ms.Tensor) for value in args):
            self._spec: Any = None
            self.tensors = list(args)
            return
        self._leaves, self._spec = pytree.tree_flatten((args, kwargs))
        self.tensors = [leaf for leaf in self._leaves if isinstance(leaf, ms.Tensor)]

    def with_tensors(self, tensors: list[torch.Tensor]) -> tuple[Any, dict[str, Any]]:
        """Positional and keyword arguments with these tensors in place of MindSpore's."""
        if self._spec is None:
            return tensors, {}
        remaining = iter(tensors)
        leaves = [next(remaining) if isinstance(leaf, ms.Tensor) else _to_torch(leaf) for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return args, kwargs


class Results:
    """What a module returned, which holds its tensors apart.

    Attributes:
        tensors: PyTorch's tensors, in order.
    """

    def __init__(self, value: Any) -> None:
        self.tensors: list[torch.Tensor]
        if type(value) is torch.Tensor:
            self._spec: Any = None
            self.tensors = [value]
            return
        self._leaves, self._spec = pytree.tree_flatten(value)
        self.tensors = [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor)]

    def with_tensors(self, tensors: list[ms.Tensor]) -> Any:
        """The same with these tensors in place of PyTorch's."""
        if self._spec is None:
            return tensors[0]
        remaining = iter(tensors)
        leaves = [next(remaining) if isinstance(leaf, torch.Tensor) else _to_mindspore(leaf) for leaf in self._leaves]
        return pytree.tree_unflatten(leaves, self._spec)


def _to_torch(leaf: Any) -> Any:
    return dtypes.to_torch(leaf) if isinstance(leaf, _MINDSPORE_DTYPE) else leaf


def _to_mindspore(leaf: Any) -> Any:
    return dtypes.to_mindspore(leaf) if isinstance(leaf, torch.dtype) else leaf
