"""`torch._assert`, with which files check shapes: in a graph it is checked while MindSpore compiles."""

from __future__ import annotations

import functools
from typing import Any

from bridge import _mindspore
from bridge.primitive.graph_calls import Part, graph_call


class Assertion(_mindspore.CompiledAsMethod):
    """PyTorch's `assert` that its tracers see.

    Raises:
        AssertionError: the condition does not hold.
        RuntimeError: a graph does not know whether it holds, because that depends on data.
    """

    def __init__(self, name: str) -> None:
        self._is_named(name)

    def __call__(self, condition: Any, message: str) -> None:
        assert condition, message

    @functools.cached_property
    def _graph_call(self) -> Any:
        return graph_call(self.__name__, self._plan)

    def _plan(self, condition: Any, message: Any) -> None:
        if isinstance(condition, Part):
            raise RuntimeError(f"{self.__name__}: the condition depends on data, which a graph does not know")
        self(condition, message)

    def _call_in_graph(self, condition, message):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self._graph_call(condition, message)
