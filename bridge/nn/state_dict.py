"""PyTorch's `state_dict` of a Cell."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.primitive.tensors import torch_view, wait_for_pytorch
from bridge.programs.cell import ModuleCell
from bridge.programs.fuse import FusedCell


def state_dict(cell: ms.nn.Cell, prefix: str = "") -> dict[str, Any]:
    """A copy of a Cell's parameters and buffers as PyTorch's tensors.

    Args:
        cell: any Cell.
        prefix: what the names that PyTorch gives them begin with.
    """
    state = as_module(cell).state_dict(prefix=prefix)
    for name, value in state.items():
        if isinstance(value, torch.Tensor) and not torch.nn.parameter.is_lazy(value):
            state[name] = value.detach().clone()
    return state


def load_state_dict(cell: ms.nn.Cell, state: Mapping[str, Any], strict: bool = True) -> Any:
    """Load PyTorch's or MindSpore's tensors into the Parameters of a Cell, in place.

    Args:
        cell: any Cell; the names in its layers are PyTorch's, others are those of its attributes.
        state: as `torch.load` gives it.
        strict: whether missing and unexpected names are an error.

    Returns:
        `missing_keys` and `unexpected_keys`.

    Raises:
        TypeError: the state is no dictionary.
        RuntimeError: in PyTorch's words, names or shapes differ.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"load_state_dict takes a dictionary, as torch.load gives it, not {type(state).__name__}")
    _mindspore.wait()
    tensors: Any = {name: torch_view(v) if isinstance(v, ms.Tensor) else v for name, v in state.items()}
    if hasattr(state, "_metadata"):
        tensors = collections.OrderedDict(tensors)
        tensors._metadata = state._metadata
    found = as_module(cell).load_state_dict(tensors, strict)
    wait_for_pytorch()
    return found


def as_module(cell: ms.nn.Cell) -> torch.nn.Module:
    """A PyTorch module with the parameters and buffers of a Cell, on the same memory, while the Cell lives.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(cell, ms.nn.Cell):
        raise TypeError(f"a Cell is needed, not {type(cell).__name__}: PyTorch's modules have state_dict themselves")
    if isinstance(cell, FusedCell):
        return as_module(cell.block)
    parameters = cell._params
    if isinstance(cell, ModuleCell):
        cell.program.follow()
        parameters = {name: value for name, value in parameters.items() if name not in cell.program_parameters}
        if not (parameters or cell._buffers or cell._cells):
            return cell.module
        module = _twin(cell.module)  # a derived class has parts of its own
    else:
        module = type(type(cell).__name__, (torch.nn.Module,), {})()
    _mindspore.wait()
    for name, parameter in parameters.items():
        data = torch_view(parameter)
        if parameter.requires_grad:
            module.register_parameter(name, torch.nn.Parameter(data))
        else:
            module.register_buffer(name, data)
    for name, tensor in cell._buffers.items():
        is_kept = name not in cell._non_persistent_buffers_set
        module.register_buffer(name, None if tensor is None else torch_view(tensor), is_kept)
    for name, child in cell._cells.items():
        if child is not None:
            module.add_module(name, as_module(child))
    return module


def _twin(module: torch.nn.Module) -> torch.nn.Module:
    """A module with the same parts, to which others can be added."""
    found = type(module).__new__(type(module))
    vars(found).update(vars(module))
    for name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
        vars(found)[name] = vars(module)[name].copy()
    return found
