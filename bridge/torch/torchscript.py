"""What files tell TorchScript, and ask of it: marks on functions, and whether it compiles. Here it never does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

from bridge import _mindspore
from bridge.primitive.graph_calls import graph_call


def _mark(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """A decorator that says how TorchScript compiles a function: gives the function back."""
    return _mark if function is None else function


class _Never(_mindspore.CompiledAsMethod):
    """A question whether TorchScript compiles: False, in both modes."""

    def __init__(self, name: str) -> None:
        self._is_named(name)

    def __call__(self) -> bool:
        return False

    @functools.cached_property
    def _graph_call(self) -> Any:
        return graph_call(self.__name__, self._plan)

    def _plan(self) -> bool:
        return False

    def _call_in_graph(self):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self._graph_call()


def script(refused: Callable[..., Any]) -> Callable[..., Any]:
    """What stands for torch.jit.script: it gives a function back, which is its decorator's use.

    Args:
        refused: what is called with anything else.
    """

    def script(function: Any, *args: Any, **kwargs: Any) -> Any:
        return function if isinstance(function, FunctionType) else refused(function, *args, **kwargs)

    return script


def names(refused: Callable[..., Any]) -> dict[str, Any]:
    """What torch.jit has here."""
    asked = {name: _Never(f"torch.jit.{name}") for name in ("is_scripting", "is_tracing")}
    return {"export": _mark, "ignore": _mark, "unused": _mark, "script": script(refused), **asked}
