"""Whether what the name of a graph follows from is as it was, in one call of C++.

Where small kernels run, Python's own look at each takes as long as they do (ms_ext/programs/python/unchanged.cpp).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from torch.nn.modules import module as modules

from bridge.programs.in_cpp import library


class Watched(NamedTuple):
    """Things that are as they were if nothing that holds them has changed.

    Args:
        containers: dictionaries, lists and tuples, which hold the same objects.
        objects: which are of the same classes.
        attributes: weak references to objects that live, names, and the objects that these find there.
        questions: functions, their arguments, and the objects or integers that they give.
    """

    containers: list[Any]
    objects: list[Any]
    attributes: list[tuple[weakref.ref[Any], str, Any]]
    questions: list[tuple[Callable[..., Any], tuple[Any, ...], Any]]

    def __add__(self, others: Any) -> Watched:
        return Watched(*(own + other for own, other in zip(self, others, strict=True)))


_HOOKS = [value for name, value in vars(modules).items() if name.startswith("_global_") and isinstance(value, dict)]


class Unchanged:
    """Those things, and what PyTorch chooses kernels by, as they are while no mode sees what PyTorch calls.

    Args:
        on_gpu: whether the kernels are of the GPU.

    Attributes:
        holds: whether they still are; False if one of them cannot say.
    """

    def __init__(self, watched: Watched, on_gpu: bool) -> None:
        given = watched + Watched(_HOOKS, [], [], [])
        address = library().ms_ext_unchanged(*map(list, given), on_gpu)
        self.holds: Callable[[], bool] = functools.partial(library().ms_ext_is_unchanged, address)
        weakref.finalize(self, library().ms_ext_free_unchanged, address)
