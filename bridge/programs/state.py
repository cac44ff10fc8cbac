"""The parameters and buffers of a module, as MindSpore's Parameters on the same memory."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator
from typing import Any

import mindspore as ms
import torch
from torch.utils.weak import WeakIdKeyDictionary

from bridge import _mindspore
from bridge.op import dtypes
from bridge.primitive.tensors import torch_view

# What several Cells have of the same module is one Parameter.
_parameters = WeakIdKeyDictionary()
# And the way back, by weak references: neither framework keeps the other's alive.
_tensors = WeakIdKeyDictionary()


@dataclasses.dataclass
class _Buffer:
    """A buffer of a module, which may put another tensor in its place.

    Attributes:
        place: the module's dictionary of buffers.
        name: the key there.
        tensor: what stood there after the last call.
        position: of the Parameter among those that ms_ext/mindspore/python/module.cpp shares.
    """

    place: dict[str, Any]
    name: str
    tensor: torch.Tensor
    position: int


class State:
    """What a module keeps between calls, shared with MindSpore.

    Args:
        module: the module.
        calls: what shares memory (ms_ext/mindspore/python/module.cpp).

    Attributes:
        parameters: MindSpore's Parameters by PyTorch's names; those that several names have are there once. As in a
            state_dict, buffers that are not persistent are left out: they stay PyTorch's own.
    """

    def __init__(self, module: torch.nn.Module, calls: Any) -> None:
        self._calls = calls
        self._buffers: list[_Buffer] = []
        self.parameters: dict[str, ms.Parameter] = {}
        positions: dict[int, int] = {}
        for name, tensor in module.named_parameters():
            self._share(name, tensor, positions)
        for prefix, owner, key in _persistent_buffers(module):
            buffer = owner._buffers[key]
            assert buffer is not None
            self._share(prefix + key, buffer, positions)
            self._buffers.append(_Buffer(owner._buffers, key, buffer, positions[id(buffer)]))

    def _share(self, name: str, tensor: torch.Tensor, positions: dict[int, int]) -> None:
        if id(tensor) in positions:
            return
        if torch.nn.parameter.is_lazy(tensor):
            raise ValueError(f"{name} has no shape yet: call the PyTorch module once before bridge.cell")
        parameter = _parameters.get(tensor)
        if parameter is None:
            empty = ms.Tensor(shape=tuple(tensor.shape), dtype=dtypes.to_mindspore(tensor.dtype))
            parameter = ms.Parameter(empty, name=name, requires_grad=tensor.requires_grad)
            _parameters[tensor] = parameter
            _tensors[parameter] = weakref.ref(tensor)
        positions[id(tensor)] = self._calls.share(parameter, tensor)
        self.parameters[name] = parameter

    def follow_buffers(self) -> None:
        """Share the tensors that the module has put in the place of buffers."""
        for buffer in self._buffers:
            now = buffer.place.get(buffer.name)
            if now is not buffer.tensor and isinstance(now, torch.Tensor):
                self._calls.replace(buffer.position, now)
                buffer.tensor = now


def shared_parameter(tensor: torch.Tensor) -> ms.Parameter | None:
    """MindSpore's Parameter for PyTorch's, if they share their memory."""
    return _parameters.get(tensor)


def torch_parameter(parameter: ms.Parameter) -> torch.nn.Parameter:
    """PyTorch's parameter for MindSpore's: the one of the module that has it, or a new one, with the same values.

    Whoever shares the two (as `State` does) has one memory for both from then on.
    """
    _mindspore.wait()
    parameter.init_data()
    data = torch_view(parameter)
    known = _tensors.get(parameter)
    found = None if known is None else known()
    if found is None:
        found = torch.nn.Parameter(data.clone(), requires_grad=parameter.requires_grad)
        _parameters[found] = parameter
        _tensors[parameter] = weakref.ref(found)
    elif found.data_ptr() != data.data_ptr():  # MindSpore's has got other memory since the module's last call
        found.data = data.clone()
    return found


def _persistent_buffers(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, str]]:
    for path, owner in module.named_modules():
        for key, buffer in owner._buffers.items():
            if buffer is not None and key not in owner._non_persistent_buffers_set:
                yield (f"{path}." if path else ""), owner, key


def move_unshared(module: torch.nn.Module, device: str) -> None:
    """Bring the buffers that only PyTorch has to the device."""
    for owner in module.modules():
        for key in owner._non_persistent_buffers_set:
            buffer = owner._buffers.get(key)
            if buffer is not None:
                owner._buffers[key] = buffer.to(device)
