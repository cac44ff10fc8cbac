"""What `set_data` and `load_param_into_net` give a program's Parameter goes into the memory that it has. So a module
has it at once, and so has a graph that MindSpore compiled before, which goes on with the memory that it knows."""

from __future__ import annotations

import functools
import weakref

import mindspore as ms
from torch.utils.weak import WeakIdKeyDictionary

from bridge import _mindspore
from bridge.programs.state import State

_states = WeakIdKeyDictionary()  # by Parameter


def follow_set_data(state: State) -> None:
    """Have a state keep its memory when MindSpore gives its Parameters other data."""
    _install()
    for parameter in state.parameters.values():
        _states.setdefault(parameter, weakref.WeakSet()).add(state)


@functools.cache
def _install() -> None:
    _mindspore.after_set_data(follow)


def follow(parameter: ms.Parameter) -> None:
    """Bring what MindSpore has just given a Parameter to the memory that its programs have."""
    for state in [*_states.get(parameter, ())]:
        state.take_data(parameter)
