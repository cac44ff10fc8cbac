"""A function and its arguments as bytes that tell them from others: its code, and everything that it can see."""

from __future__ import annotations

import hashlib
import io
import pathlib
import pickle
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import mindspore as ms
import numpy as np
import torch

_TORCH = f"{pathlib.Path(torch.__file__).parent}/"
# Code of packages is told apart by their source files: what it sees in its modules is not written down.
_PACKAGES = (
    f"{pathlib.Path(torch.__file__).parents[1]}/",
    f"{pathlib.Path(ms.__file__).parents[1]}/",
    f"{pathlib.Path(__file__).parents[1]}/",
    f"{sysconfig.get_path('stdlib')}/",
)
# What every Cell has; what is its own among that is written down by name.
_OF_ALL_CELLS = frozenset(vars(ms.nn.Cell()))


class TellsItself:
    """An object that says what tells it from others."""

    def told_apart_by(self) -> Any:
        raise NotImplementedError


# Values of these types in a function's module are written down, and the user's functions; its source files stand for
# the others.
_WRITTEN = (
    type(None), bool, int, float, complex, str, bytes, tuple, list, dict, torch.Tensor, torch.dtype, torch.nn.Module,
    ms.Tensor, ms.nn.Cell, TellsItself,
)  # fmt: skip


@dataclass
class Written:
    """What tells a function and its arguments from others, also in the next process.

    Args:
        digest: of its code, of what it can see, and of the arguments.
        tensors: the ids of the tensors among that.
    """

    digest: bytes
    tensors: set[int]


def write_down(called: Any, state: Sequence[torch.Tensor]) -> Written | None:
    """What tells a function and its arguments from others; None if something in them cannot be written down.

    Args:
        called: both.
        state: tensors whose data does not matter.
    """
    to = io.BytesIO()
    pickler = _Pickler(to, {id(tensor): i for i, tensor in enumerate(state)})
    try:
        pickler.dump(called)
    except Exception:  # whatever the attributes of somebody's objects raise: it is captured in each process
        return None
    return Written(hashlib.sha256(to.getvalue()).digest(), pickler.tensors)


def digest_of(tensor: torch.Tensor) -> str:
    """That of a tensor's data."""
    data = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(data.tobytes()).hexdigest()


class _Pickler(pickle.Pickler):
    """Writes tensors as their shapes and digests, and functions as their code."""

    def __init__(self, to: io.BytesIO, state: dict[int, int]) -> None:
        super().__init__(to, protocol=4)
        self._state = state
        self.tensors: set[int] = set()

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        self.tensors.add(id(value))
        spec = (type(value).__name__, tuple(value.shape), str(value.dtype), value.requires_grad, str(value.device))
        if id(value) in self._state:
            return repr((spec, self._state[id(value)]))
        layout = value.stride(), value.is_conj(), value.is_neg()
        return repr((spec, layout, digest_of(value)))

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, FunctionType) and not _is_importable(value):
            # As an object's state, because a function may see itself.
            return _Stand, (value.__module__, value.__qualname__), _parts(value)
        if isinstance(value, type) and (methods := _methods(value)):
            return _Stand, (value.__module__, value.__qualname__), methods
        if isinstance(value, TellsItself):
            return _Stand, (type(value),), {"of": value.told_apart_by()}
        if isinstance(value, ms.nn.Cell):
            return _Stand, (type(value),), _parts_of_cell(value)
        if isinstance(value, ms.Parameter):
            return _Stand, (value.name, tuple(value.shape), str(value.dtype))
        if isinstance(value, ms.Tensor):
            data = np.ascontiguousarray(value.asnumpy())
            return _Stand, (tuple(value.shape), str(value.dtype), hashlib.sha256(data.tobytes()).hexdigest())
        return NotImplemented


class _Stand:
    """Stands for a function, class, Cell or tensor in what is written down."""


def _is_importable(function: FunctionType) -> bool:
    """Whether a function is PyTorch's, by its name: its version stands for it."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function and function.__code__.co_filename.startswith(_TORCH)


def _parts(function: FunctionType) -> dict[str, Any]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    names = set(_names(function.__code__))
    seen = {name: value for name, value in function.__globals__.items() if name in names and _is_written(value)}
    parts = (function.__defaults__, function.__kwdefaults__, cells, sorted(seen.items()))
    return {"code": _described(function.__code__), "parts": parts}


def _is_written(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return not value.__code__.co_filename.startswith(_PACKAGES)
    return isinstance(value, _WRITTEN)


def _methods(kind: type) -> dict[str, Any]:
    """What the user's own code has in a class and the classes that it derives from."""
    return {
        f"{base.__qualname__}.{name}": value
        for base in reversed(kind.__mro__)
        for name, member in vars(base).items()
        if isinstance(value := _function_of(member), FunctionType) and _is_written(value)
    }


def _function_of(member: Any) -> Any:
    """The function that a property, a static method or a class method has."""
    return member.fget if isinstance(member, property) else getattr(member, "__func__", member)


def _parts_of_cell(cell: ms.nn.Cell) -> dict[str, Any]:
    """Its mode, attributes, Parameters and Cells."""
    own = {name: value for name, value in vars(cell).items() if name not in _OF_ALL_CELLS}
    parameters = list(cell.parameters_dict(recurse=False).values())
    return {"training": cell.training, "own": own, "parameters": parameters, "cells": list(cell.name_cells().items())}


def _described(code: CodeType) -> Any:
    constants = [_described(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _names(value)
