"""Reads that no mode of PyTorch's sees: they take a tensor's data from its memory at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from bridge.programs.calls import Refusal

_READS = ("tolist", "numpy")


@contextlib.contextmanager
def refuse_reads(state: Sequence[torch.Tensor]) -> Iterator[None]:
    """Refuse them for these tensors, whose data a captured program must not hold."""
    refused = {id(tensor) for tensor in state}
    for name in _READS:
        setattr(torch.Tensor, name, _checked(name, refused))
    try:
        yield
    finally:
        for name in _READS:  # PyTorch's own stand in the base class
            delattr(torch.Tensor, name)


def _checked(name: str, refused: set[int]) -> Callable[..., Any]:
    own = getattr(torch._C.TensorBase, name)

    def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if id(tensor) in refused or (name == "numpy" and isinstance(tensor, FakeTensor)):
            raise Refusal(
                f"Tensor.{name} asks for a value that depends on data, which a graph does not know: PyNative mode does"
            )
        return own(tensor, *args, **kwargs)

    return read
