"""Nested arguments and results: the tensors in them, and the rest."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mindspore as ms
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from bridge import _mindspore
from bridge.op import dtypes
from bridge.programs.refusals import LEFT

# What needs no look inside. PyTorch takes nested values apart in ten microseconds, and leaves a cycle of garbage.
TENSORS = frozenset((ms.Tensor, _mindspore.ParameterTensor))
_PLAIN = TENSORS.union((int, float, bool, str, type(None)))
# What mindspore.mutable makes of Python's values is of types of its own.
_MARKED: dict[type, Callable[[Any], Any]] = {
    type(ms.mutable(value)): type(value) for value in ((0,), [0], {"": 0}, 0, 0.0, True)
}


class Tree:
    """A nested value, which holds the tensors of one framework apart.

    PyTorch knows the containers, and those that others have told it of, as transformers does. Other dataclasses are
    containers too. What is none of them passes as it is. What mindspore.mutable has marked is Python's own.

    Args:
        value: containers, tensors, and other values.
        tensor_type: what a tensor is.
        convert: makes the other framework's value of a leaf that is no tensor.

    Attributes:
        tensors: the tensors, in order.
    """

    def __init__(self, value: Any, tensor_type: type, convert: Callable[[Any], Any]) -> None:
        self.tensors: list[Any] = []
        self._tensor_type = tensor_type
        self._convert = convert
        self._shape = self._taken_apart(value)

    def _taken_apart(self, value: Any) -> Any:
        if isinstance(value, self._tensor_type):
            self.tensors.append(value)
            return None
        leaves, spec = pytree.tree_flatten(value, is_leaf=_is_packed)
        return [self._leaf(leaf) for leaf in leaves], spec

    def _leaf(self, leaf: Any) -> Any:
        """A function of the other framework's tensors that gives what stands for the leaf."""
        if isinstance(leaf, self._tensor_type):
            self.tensors.append(leaf)
            return next
        if _is_packed(leaf):
            packed = self._taken_apart(list(leaf))
            return lambda tensors: _packed(type(leaf), self._put_together(packed, tensors))
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            fields = [field.name for field in dataclasses.fields(leaf)]
            inner = self._taken_apart([getattr(leaf, name) for name in fields])
            return lambda tensors: _with_fields(leaf, fields, self._put_together(inner, tensors))
        if type(leaf) in _MARKED:
            plain = self._taken_apart(_MARKED[type(leaf)](leaf))
            return lambda tensors: self._put_together(plain, tensors)
        converted = self._convert(leaf)
        return lambda _: converted

    def with_tensors(self, tensors: list[Any]) -> Any:
        """The value with these tensors in place of its own."""
        return self._put_together(self._shape, iter(tensors))

    def _put_together(self, shape: Any, tensors: Iterator[Any]) -> Any:
        if shape is None:
            return next(tensors)
        leaves, spec = shape
        return pytree.tree_unflatten([leaf(tensors) for leaf in leaves], spec)


def _is_packed(value: Any) -> bool:
    return isinstance(value, PackedSequence)


def _packed(kind: type, fields: list[Any]) -> Any:
    """A packed sequence, made past its __new__, which asks PyTorch's tensors for their device."""
    data, batch_sizes, *indices = fields
    if isinstance(batch_sizes, torch.Tensor):
        batch_sizes = batch_sizes.cpu()  # where PyTorch wants them, whatever device the data is on
    return tuple.__new__(kind, (data, batch_sizes, *indices))


def _with_fields(value: Any, names: list[str], fields: list[Any]) -> Any:
    changed = copy.copy(value)
    for name, field in zip(names, fields, strict=True):
        object.__setattr__(changed, name, field)
    return changed


class _TensorArguments:
    """Positional arguments that are tensors: in the place of a Tree."""

    __slots__ = ("tensors",)

    def __init__(self, tensors: tuple[Any, ...]) -> None:
        self.tensors = tensors

    def with_tensors(self, tensors: list[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        return tensors, {}


class _PlainArguments:
    """Arguments of which none is a container: in the place of a Tree."""

    __slots__ = ("_args", "_kwargs", "tensors")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._args, self._kwargs = args, kwargs
        self.tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, ms.Tensor)]

    def with_tensors(self, tensors: list[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        left = iter(tensors)
        args = [next(left) if isinstance(value, ms.Tensor) else value for value in self._args]
        return args, {k: next(left) if isinstance(value, ms.Tensor) else value for k, value in self._kwargs.items()}


class _Single:
    """One of PyTorch's tensors: in the place of a Tree."""

    __slots__ = ("tensors",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensors = [tensor]

    def with_tensors(self, tensors: list[Any]) -> Any:
        return tensors[0]


class _Tensors:
    """A tuple of PyTorch's tensors and of such tuples: in the place of a Tree."""

    def __init__(self, value: tuple[Any, ...], tensors: list[torch.Tensor]) -> None:
        self._value = value
        self.tensors = tensors

    def with_tensors(self, tensors: list[Any]) -> tuple[Any, ...]:
        return _filled(self._value, iter(tensors))


def _are_tensors(value: tuple[Any, ...], tensors: list[torch.Tensor]) -> bool:
    """Whether there is nothing but tensors in a nested tuple; they are collected."""
    for item in value:
        if type(item) is torch.Tensor:
            tensors.append(item)
        elif type(item) is not tuple or not _are_tensors(item, tensors):
            return False
    return True


def _filled(value: tuple[Any, ...], tensors: Iterator[Any]) -> tuple[Any, ...]:
    return tuple([_filled(item, tensors) if type(item) is tuple else next(tensors) for item in value])


def is_of_torch(value: Any) -> bool:
    """Whether a value is one of PyTorch's tensors, or a tuple of them and of such tuples."""
    return type(value) is torch.Tensor or (type(value) is tuple and _are_tensors(value, []))


def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tree | _TensorArguments | _PlainArguments:
    """The positional and keyword arguments of a call with MindSpore's tensors."""
    if not kwargs and TENSORS.issuperset(map(type, args)):
        return _TensorArguments(args)
    if _PLAIN.issuperset(map(type, args)) and _PLAIN.issuperset(map(type, kwargs.values())):
        return _PlainArguments(args, kwargs)
    return Tree((args, kwargs), ms.Tensor, to_torch_leaf)


def calling(
    name: str, function: Callable[..., Any], given: Tree | _TensorArguments | _PlainArguments
) -> Callable[..., Any]:
    """What calls a function, of this name, with these arguments, and is given the tensors in the place of theirs."""
    if isinstance(given, _TensorArguments):
        return function

    def called(*tensors: Any) -> Any:
        args, kwargs = given.with_tensors([*tensors])
        if isinstance(given, _PlainArguments):
            return function(*args, **kwargs)
        copies = Copies(args, kwargs)
        found = function(*args, **kwargs)
        copies.warn_of_writes(name)
        return found

    return called


class Copies:
    """The lists and dictionaries among arguments, which a function gets copies of."""

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        named = [*((f"argument {i}", value) for i, value in enumerate(args)), *kwargs.items()]
        self._before = [(name, one, one.copy()) for name, value in named for one in _containers(value)]

    def warn_of_writes(self, name: str) -> None:
        """Warn if the function of this name has written to one."""
        for argument, now, before in self._before:
            if not _are_same(now, before):
                warnings.warn(
                    f"{name} writes to {argument}, a {type(now).__name__}: it has a copy, and the caller's stays as it "
                    "was. Return what has to be kept",
                    stacklevel=1,
                )


def _containers(value: Any) -> Iterator[Any]:
    if type(value) not in (tuple, list, dict, OrderedDict, defaultdict):
        return
    if type(value) is not tuple:
        yield value
    for item in value.values() if isinstance(value, dict) else value:
        yield from _containers(item)


def _are_same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(one[key] is other[key] for key in one)
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _to_mindspore(leaf: Any) -> Any:
    return dtypes.to_mindspore(leaf) if isinstance(leaf, torch.dtype) else leaf


def results(value: Any, convert: Callable[[Any], Any] = _to_mindspore) -> Tree | _Single | _Tensors:
    """What a PyTorch module returned.

    Args:
        convert: see Tree.
    """
    if type(value) is torch.Tensor:
        return _Single(value)
    tensors: list[torch.Tensor] = []
    if type(value) is tuple and _are_tensors(value, tensors):
        return _Tensors(value, tensors)
    return Tree(value, torch.Tensor, convert)


def results_with_data(value: Any) -> Tree | _Single | _Tensors:
    """What a PyTorch module returned in PyNative mode.

    Raises:
        RuntimeError: a capture has left a tensor without data somewhere, and it is a result or made it one.
    """
    found = results(value)
    if any(isinstance(tensor, FakeTensor) for tensor in found.tensors):
        raise RuntimeError(LEFT)
    return found


def to_torch_leaf(leaf: Any) -> Any:
    return dtypes.to_torch(leaf) if isinstance(leaf, ms.dtype.Type) else leaf
