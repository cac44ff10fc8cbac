"""A function on PyTorch's tensors as one on MindSpore's, made ready at its first call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from bridge import _mindspore
from bridge.call import in_program
from bridge.programs.program import Program


class TensorFunction(_mindspore.CompiledAsMethod):
    """A program (bridge/programs/program.py) that importing does not make.

    Args:
        function: on PyTorch's tensors.
        name: what errors call it.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name

    @functools.cached_property
    def program(self) -> Program:
        """What runs."""
        return Program(self.function, name=self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if in_program.is_inside():
            return self.function(*args, **kwargs)
        return self.program(*args, **kwargs)

    def _call_in_graph(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.program(*args, **kwargs)
