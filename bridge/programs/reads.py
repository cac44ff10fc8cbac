"""Reads that no mode of PyTorch's sees: they take a tensor's data from its memory at once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from bridge.programs.calls import Refusal
from bridge.programs.replaced import Replacement, replaced

_READS = ("tolist", "numpy")


@contextlib.contextmanager
def refuse_reads(state: Sequence[torch.Tensor]) -> Iterator[None]:
    """Refuse them for these tensors, whose data a captured program must not hold.

    What prints them is refused at the end only: an error that has their text is an error first.
    """
    refused = {id(tensor) for tensor in state}
    printed: list[Refusal] = []
    for name in _READS:
        setattr(torch.Tensor, name, _checked(name, refused))
    try:
        with replaced([_printing("__repr__", refused, printed), _printing("__format__", refused, printed)]):
            yield
    finally:
        for name in _READS:  # PyTorch's own stand in the base class
            delattr(torch.Tensor, name)
    if printed:
        raise printed[0]


def _refusal(name: str) -> Refusal:
    return Refusal(
        f"Tensor.{name} asks for a value that depends on data, which a graph does not know: PyNative mode does"
    )


def _checked(name: str, refused: set[int]) -> Callable[..., Any]:
    own = getattr(torch._C.TensorBase, name)

    def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if id(tensor) in refused or (name == "numpy" and isinstance(tensor, FakeTensor)):
            raise _refusal(name)
        return own(tensor, *args, **kwargs)

    return read


def _printing(name: str, refused: set[int], printed: list[Refusal]) -> Replacement:
    own = getattr(torch.Tensor, name)

    def text(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> str:
        if id(tensor) not in refused:
            return own(tensor, *args, **kwargs)
        printed.append(_refusal(name).with_traceback(_stack()))
        return f"tensor of shape {list(tensor.shape)}"

    return Replacement(torch.Tensor, name, text)


def _stack() -> TracebackType | None:
    """Where the program is."""
    found, frame = None, sys._getframe(2)
    while frame is not None:
        found = TracebackType(found, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return found
