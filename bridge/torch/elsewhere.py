"""What stands for a name of PyTorch's that MindSpore has elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from bridge import _mindspore
from bridge.primitive.graph_calls import graph_call
from bridge.torch.reasons import reason


class Elsewhere(_mindspore.CompiledAsMethod):
    """Stands for something of PyTorch's that MindSpore has elsewhere: says so where it is used.

    Args:
        name: as in "torch.no_grad".
        sentence: what MindSpore has instead.
        value: PyTorch's own; None if it is not at hand.
    """

    def __init__(self, name: str, sentence: str, value: Any = None) -> None:
        self._is_named(name)
        self.sentence = sentence
        self._value = value

    @functools.cached_property
    def _graph_call(self) -> Any:
        return graph_call(self.__name__, self.refuse)

    def refuse(self, *_: Any) -> NoReturn:
        """Say what MindSpore has instead."""
        raise NotImplementedError(f"{self.__name__} is not in bridge.torch: {self.sentence}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self._value, type) and hasattr(self._value, "__enter__"):
            return _Context(self)
        self.refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(self._value, name):
            raise AttributeError(f"{self.__name__} has no {name!r}, and is not in bridge.torch: {self.sentence}")
        full = f"{self.__name__}.{name}"
        return Elsewhere(full, reason(full) or self.sentence, getattr(self._value, name))

    def __setattr__(self, name: str, value: Any) -> None:
        known = self.__dict__.get("_value")  # such as torch.backends.cudnn, which has the setting `benchmark`
        if not name.startswith("_") and hasattr(known, name):
            raise NotImplementedError(f"{self.__name__}.{name} is not in bridge.torch: {self.sentence}")
        super().__setattr__(name, value)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        self.refuse()

    def _call_in_graph(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self._graph_call(args, kwargs)

    def __repr__(self) -> str:
        return f"<{self.__name__}: {self.sentence}>"


class _Context:
    """A context manager that MindSpore does not have. A class may be defined with it as a decorator, for a method that
    is never called."""

    def __init__(self, elsewhere: Elsewhere) -> None:
        self._elsewhere = elsewhere

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def refused(*args: Any, **kwargs: Any) -> NoReturn:
            self._elsewhere.refuse()

        return refused

    def __enter__(self) -> NoReturn:
        self._elsewhere.refuse()

    def __exit__(self, *error: Any) -> None:
        """Never reached."""
