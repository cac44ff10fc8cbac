"""A function as bytes that tell it from others: its code, and everything that it can see."""

from __future__ import annotations

import hashlib
import io
import pathlib
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.primitive.tensors import torch_view

_TORCH = f"{pathlib.Path(torch.__file__).parent}/"
# Values of these types in a function's module are written down; its source files stand for the others.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, tuple, list, dict, torch.Tensor, torch.dtype)


@dataclass
class Written:
    """What tells a function from others, also in the next process.

    Args:
        digest: of its code, and of what it can see.
        tensors: the ids of the tensors among that.
    """

    digest: bytes
    tensors: set[int]


def write_down(function: Callable[..., Any], state: Sequence[torch.Tensor]) -> Written | None:
    """What tells a function from others; None if something in it cannot be written down.

    Args:
        state: tensors whose data does not matter.
    """
    _mindspore.wait()
    to = io.BytesIO()
    pickler = _Pickler(to, {id(tensor): i for i, tensor in enumerate(state)})
    try:
        pickler.dump(function)
    except Exception:  # whatever the attributes of somebody's objects raise: it is captured in each process
        return None
    return Written(hashlib.sha256(to.getvalue()).digest(), pickler.tensors)


class _Pickler(pickle.Pickler):
    """Writes tensors of both frameworks as their shapes and digests, and functions as their code."""

    def __init__(self, to: io.BytesIO, state: dict[int, int]) -> None:
        super().__init__(to, protocol=4)
        self._state = state
        self.tensors: set[int] = set()

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, ms.Tensor):
            named = type(value).__name__, getattr(value, "name", None), getattr(value, "requires_grad", None)
            return repr((named, tuple(value.shape), str(value.dtype), _digest(torch_view(value))))
        if not isinstance(value, torch.Tensor):
            return None
        self.tensors.add(id(value))
        spec = (type(value).__name__, tuple(value.shape), str(value.dtype), value.requires_grad, str(value.device))
        if id(value) in self._state:
            return repr((spec, self._state[id(value)]))
        return repr((spec, _digest(value)))

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, FunctionType) and not _is_importable(value):
            # As an object's state, because a function may see itself.
            return _Function, (value.__module__, value.__qualname__), _parts(value)
        return NotImplemented


def _digest(tensor: torch.Tensor) -> str:
    """That of its data."""
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(data.data).hexdigest()


class _Function:
    """Stands for a function in what is written down."""


def _is_importable(function: FunctionType) -> bool:
    """Whether a function is PyTorch's, by its name: its version stands for it."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function and function.__code__.co_filename.startswith(_TORCH)


def _parts(function: FunctionType) -> dict[str, Any]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    names = set(_names(function.__code__))
    seen = {name: value for name, value in function.__globals__.items() if name in names and isinstance(value, _PLAIN)}
    parts = (function.__defaults__, function.__kwdefaults__, cells, sorted(seen.items()))
    return {"code": _described(function.__code__), "parts": parts}


def _described(code: CodeType) -> Any:
    constants = [_described(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _names(value)
