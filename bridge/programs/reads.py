"""Reads that no mode of PyTorch's sees: they take a tensor's data from its memory at once."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from bridge.programs.calls import Refusal, no_modes
from bridge.programs.replaced import Replacement, replaced

_READS = ("tolist", "numpy")
_FEW = 64  # integers that an array may have which data decides

Data = Callable[[torch.Tensor], torch.Tensor | None]


@contextlib.contextmanager
def refuse_reads(state: Sequence[torch.Tensor], data_of: Data) -> Iterator[None]:
    """Refuse them, but for tensors whose data is the same in each call: `data_of` gives it, or None.

    What prints a tensor of the state is refused at the end only: an error that has its text is an error first.
    """
    refused = {id(tensor) for tensor in state}
    printed: list[Refusal] = []
    arrays: list[_Array] = []
    reads = [Replacement(torch.Tensor, name, _checked(name, data_of, arrays)) for name in _READS]
    with replaced([*reads, _printing("__repr__", refused, printed), _printing("__format__", refused, printed)]):
        yield
    if printed:
        raise printed[0]
    for array in arrays:
        array.check(data_of(array.tensor))


def _refusal(name: str) -> Refusal:
    return Refusal(
        f"Tensor.{name} asks for a value that depends on data, which a graph does not know: PyNative mode does"
    )


@dataclasses.dataclass
class _Array:
    """An array that a tensor gave. PyTorch's has the tensor's memory, this one a copy."""

    tensor: torch.Tensor
    array: np.ndarray[Any, Any]
    where: TracebackType | None

    def check(self, data: torch.Tensor | None) -> None:
        """Refuse writes to either of them: the other one would not have them."""
        if data is None or data.numpy(force=True).tobytes() != self.array.tobytes():
            what = "a graph takes no writes to what Tensor.numpy gave, nor to its tensor: PyNative mode does"
            raise Refusal(what).with_traceback(self.where)


def _is_of_few_integers(tensor: torch.Tensor) -> bool:
    is_integer = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype is torch.bool)
    return isinstance(tensor, FakeTensor) and is_integer and tensor.numel() <= _FEW


def _checked(name: str, data_of: Data, arrays: list[_Array]) -> Callable[..., Any]:
    own = getattr(torch._C.TensorBase, name)

    def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if name == "tolist" and isinstance(tensor, FakeTensor):
            return own(tensor)  # asks for one number after the other
        with no_modes():
            data = data_of(tensor)
        if data is None and name == "numpy" and _is_of_few_integers(tensor):
            array = np.array(tensor.tolist(), dtype=str(tensor.dtype).removeprefix("torch."))
            array.flags.writeable = False  # the tensor would not have what is written to it
            return array
        with no_modes():
            if data is None:
                raise _refusal(name)
            found = own(data.requires_grad_(tensor.requires_grad), *args, **kwargs)
        if name == "numpy":
            arrays.append(_Array(tensor, found, stack()))
        return found

    return read


def _printing(name: str, refused: set[int], printed: list[Refusal]) -> Replacement:
    own = getattr(torch.Tensor, name)

    def text(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> str:
        if id(tensor) not in refused:
            return own(tensor, *args, **kwargs)
        printed.append(_refusal(name).with_traceback(stack()))
        return f"tensor of shape {list(tensor.shape)}"

    return Replacement(torch.Tensor, name, text)


def stack() -> TracebackType | None:
    """Where the program is."""
    found, frame = None, sys._getframe(2)
    while frame is not None:
        found = TracebackType(found, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return found
