"""A module has at once what MindSpore loads: `set_data` and `load_param_into_net` give a Parameter other memory."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import mindspore as ms
from torch.utils.weak import WeakIdKeyDictionary

from bridge import _mindspore

_programs = WeakIdKeyDictionary()  # by Parameter


def follow_set_data(program: Any) -> None:
    """Have a module's program follow each of its Parameters that is given other data."""
    _install()
    for parameter in program.state.parameters.values():
        _programs.setdefault(parameter, weakref.WeakSet()).add(program)


@functools.cache
def _install() -> None:
    _mindspore.after_set_data(_follow)


def _follow(parameter: ms.Parameter) -> None:
    for program in [*_programs.get(parameter, ())]:
        program.follow()
