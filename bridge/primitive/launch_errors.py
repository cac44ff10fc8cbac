"""Errors of launches in PyTorch's classes. MindSpore makes a RuntimeError of each; ms_ext/errors.h knows its class."""

from __future__ import annotations

import ctypes
import functools
import pkgutil
from collections.abc import Callable
from typing import NoReturn

from bridge.call.int64_hint import give_hint, with_hint
from bridge.op import devices
from bridge.op.table import SHARED

_UNIT_SEPARATOR = "\x1f"


def text_of(kind: type[Exception], words: str) -> str:
    """An error as a text, which a program may have (ms_ext/errors.h)."""
    return f"{kind.__module__}:{kind.__qualname__}{_UNIT_SEPARATOR}{words}"


def has_class(text: str) -> bool:
    """Whether a text says of which class its error is."""
    return _UNIT_SEPARATOR in text


def error_of(text: str) -> BaseException:
    """The error that a text is about: a RuntimeError where it does not say its class."""
    name, _, words = text.rpartition(_UNIT_SEPARATOR)
    return _error(name, words) or RuntimeError(words)


def raise_in_own_class(error: RuntimeError) -> NoReturn:
    """Raise the error that has just been caught: see `in_own_class`."""
    found = in_own_class(error)
    if found is error:
        raise
    raise found from None


def in_own_class(error: BaseException) -> BaseException:
    """The error of a launch, in the class that it has in PyTorch; any other one as it is."""
    if not isinstance(error, RuntimeError):
        return error
    words = with_hint(str(error))
    name = _class_of()(str(error).encode())
    found = None if name is None else _error(name.decode(), words)
    if found is None:
        give_hint(error)
    return error if found is None else found.with_traceback(error.__traceback__)


def _error(name: str, words: str) -> BaseException | None:
    """One of the class with that name, as KeyboardInterrupt; None for a class that is gone, as that of a function, or
    takes something else than words."""
    try:
        found = pkgutil.resolve_name(name)(Words(words))
        is_right = isinstance(found, BaseException) and str(found) == words
    except Exception:  # of a class of the user's
        return None
    return found if is_right else None


class Words(str):
    """A text that a KeyError, whose words are the repr of what it has, says with its line breaks."""

    __repr__ = str.__str__


@functools.cache
def _class_of() -> Callable[[bytes], bytes | None]:
    function = devices.load(SHARED["CPU"]).ms_ext_class_of_error
    function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_char_p
    return function
