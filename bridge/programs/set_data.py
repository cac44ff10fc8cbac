"""What `set_data` and `load_param_into_net` give a program's Parameter goes into the memory that it has. So a module
has it at once, and so has a graph that MindSpore compiled before, which goes on with the memory that it knows. After
`set_dtype` the Parameter has other memory, which the module has at once, and a graph is compiled anew."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import mindspore as ms
from torch.utils.weak import WeakIdKeyDictionary

from bridge import _mindspore
from bridge.programs import modes
from bridge.programs.state import State

_states = WeakIdKeyDictionary()  # by Parameter


def follow_set_data(state: State) -> None:
    """Have a state keep its memory when MindSpore gives its Parameters other data."""
    _install()
    for parameter in state.parameters.values():
        _states.setdefault(parameter, weakref.WeakSet()).add(state)


@functools.cache
def _install() -> None:
    _mindspore.around_set_data(_of_its_shape, follow)
    _mindspore.after_set_dtype(_follow_dtype)
    _mindspore.after_making_optimizers(_keep_memory)


def _keep_memory(optimizer: ms.nn.Optimizer) -> None:
    """An optimizer of MindSpore's compiles its step, also in PyNative mode."""
    if not type(optimizer).__module__.startswith("bridge."):
        parameters = list(optimizer.parameters)
        for state in {state for parameter in parameters for state in _states.get(parameter, ())}:
            state.keep_memory(parameters)


def _of_its_shape(parameter: ms.Parameter, data: Any) -> Any:
    """The data for a Parameter. As MindSpore loads checkpoints, ones at the end of a shape do not matter."""
    if not isinstance(data, (ms.Tensor, int, float)) or not _states.get(parameter):
        return data
    shape, own = getattr(data, "shape", ()), parameter.shape
    if tuple(shape) == tuple(own):
        return data
    if _without_ones(shape) == _without_ones(own):
        return ms.Tensor(data, parameter.dtype).reshape(own)
    raise ValueError(
        f"set_data: {parameter.name} shares its memory with a tensor of PyTorch's of shape {list(own)}, and takes no "
        f"data of shape {list(shape)}: change the module, and call bridge.cell again"
    )


def _without_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without the ones at its end."""
    sizes = [*shape]
    while sizes and sizes[-1] == 1:
        sizes.pop()
    return tuple(sizes)


def _follow_dtype(parameter: ms.Parameter) -> None:
    modes.note_other_dtype()
    for state in [*_states.get(parameter, ())]:
        state.take_dtype(parameter)


def follow(parameter: ms.Parameter) -> None:
    """Bring what MindSpore has just given a Parameter to the memory that its programs have."""
    for state in [*_states.get(parameter, ())]:
        state.take_data(parameter)
