"""`inplace=True`: MindSpore's tensors are values, so a function or layer returns a new one."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any


def warn_of_new_tensors(name: str, stacklevel: int) -> None:
    """Say what a function or layer does, because code may read the argument."""
    words = f"{name}(inplace=True) returns a new tensor here, and its argument keeps its values"
    warnings.warn(words, stacklevel=stacklevel)


def not_in_place(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """The arguments without `inplace=True`; None if they have none."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    if bound.arguments.get("inplace") is not True:
        return None
    bound.arguments["inplace"] = False
    return bound.args, bound.kwargs
