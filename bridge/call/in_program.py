"""Calls inside a fused program (bridge/programs/fuse.py): its tensors are PyTorch's, and PyTorch runs them at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mindspore as ms
import torch
from torch.utils import _pytree as pytree

from bridge.call.arguments import Bound, TensorMark, resolve
from bridge.call.matmul import matmul
from bridge.call.torch_call import renamed, torch_call
from bridge.op import dtypes
from bridge.op.encoding import Slot
from bridge.op.overload import Overload
from bridge.op.schema import label

# What errors say of something that has no twin (bridge/programs/twin.py).
ELSEWHERE = (
    "the program has it from where bridge.fuse does not look: have it, or what holds it, as an argument, a variable or "
    "an attribute of a Cell or of an object of your own class"
)


class TorchMark(TensorMark):
    """A tensor of PyTorch's where arguments are bound."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.shape = tuple(tensor.shape)


def marked(value: Any) -> Any:
    """An argument with a mark for each of PyTorch's tensors."""
    if isinstance(value, (list, tuple)):
        return [marked(item) for item in value]
    return TorchMark(value) if isinstance(value, torch.Tensor) else value


class _Threads(threading.local):
    inside = False


_threads = _Threads()


def is_inside() -> bool:
    """Whether this thread runs a fused program."""
    return _threads.inside


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """What this thread calls is part of a fused program."""
    before, _threads.inside = _threads.inside, True
    try:
        yield
    finally:
        _threads.inside = before


def has_torch_tensor(value: Any) -> bool:
    """Whether there is a tensor of PyTorch's among nested values."""
    return any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))


def bind(name: str, overloads: Sequence[Overload], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Bound:
    """The call with marks for its tensors.

    Raises:
        TypeError: one of the tensors is MindSpore's; or see `resolve`.
        RuntimeError: it is a user's kernel that PyTorch cannot call or differentiate.
    """
    given = [*args, *kwargs.values()]
    for value in (*given, *(item for items in given if isinstance(items, (list, tuple)) for item in items)):
        if isinstance(value, ms.Tensor):
            raise TypeError(
                f"{label(name)}: inside bridge.fuse all tensors are PyTorch's, and this one of shape {value.shape} is "
                f"MindSpore's: a MindSpore operator has made it, or {ELSEWHERE}"
            )
    bound = resolve(name, overloads, [marked(value) for value in args], {key: marked(v) for key, v in kwargs.items()})
    if bound.overload.not_in_programs:
        reason = bound.overload.not_in_programs
        raise RuntimeError(f"{label(name)} cannot be called inside bridge.fuse or bridge.value_and_grad: {reason}")
    return bound


def call(bound: Bound, tensors: list[torch.Tensor], device: str) -> Any:
    """Run a bound call in PyTorch. Several results are a tuple, as outside."""
    state = _state(bound)
    tensors = [tensor.detach() if i in state else tensor for i, tensor in enumerate(tensors)]
    try:
        if bound.overload.name == "matmul":
            results = matmul(*tensors)
        else:
            results = torch_call(bound.overload, bound.text, tensors, device)
    except Exception as error:
        raise renamed(error, bound.overload.name) from error
    return _plain(results)


def _state(bound: Bound) -> set[int]:
    """The tensors that are running statistics: the operator writes to them, and outside they have no gradient."""
    in_text = [argument for argument in bound.overload.schema.arguments if argument.base not in ("Device", "Generator")]
    pairs = zip(in_text, bound.text.values, strict=True)
    return {v.position for a, v in pairs if a.name in ("running_mean", "running_var") and isinstance(v, Slot)}


def _plain(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return dtypes.to_mindspore(value)
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value
