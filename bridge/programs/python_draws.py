"""Numbers that Python draws, by `random` and `numpy.random`: `if random.random() < p:`, `lam = np.random.beta(1, 1)`.

A draw is a call of the program, whose kernel is Python's function: it draws from the generator that the rest of the
user's code draws from, each time that the program runs. The number is one that depends on data: a float
(data_floats.py), or an integer, which counts as a size (data_sizes.py).
"""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, MethodType
from typing import Any

import numpy as np
import torch

from bridge.op import devices
from bridge.programs import drawn_arrays
from bridge.programs.calls import AsksForData, Refusal
from bridge.programs.data_floats import DataFloat, DataFloats
from bridge.programs.loaded_modules import Places
from bridge.programs.replaced import Replacement

DEVICE = "python"
"""What stands for a device where a call draws from these generators."""

# The functions of both modules that draw, each a method of the module's generator, by their names.
_FUNCTIONS = {
    f"{holder.__name__}.{name}": function
    for holder, drawing in ((random, "random"), (np.random, "rand"))
    for name, function in vars(holder).items()
    if getattr(function, "__self__", None) is vars(holder)[drawing].__self__ and not name.endswith(("state", "seed"))
}
_NAMES = {id(function): name for name, function in _FUNCTIONS.items()}
_places = Places(lambda value: type(value) in (MethodType, BuiltinFunctionType) and id(value) in _NAMES)
# Without arguments these give a number of [0, 1).
_BELOW_ONE = {"random.random", *(f"numpy.random.{name}" for name in ("rand", "random", "random_sample"))}
_REFUSED = "{} draws {} in Python, which a graph does not repeat: PyNative mode does"
_LATER = (
    "{} draws in Python, and MindSpore runs a graph on a GPU later than Python goes on, which may draw before it: "
    "PyNative mode draws in order"
)


def _drawn(call: str) -> Any:
    name, args, kwargs = json.loads(call)
    return _FUNCTIONS[name](*args, **kwargs)


def _draw(call: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(_drawn(call), dtype=dtype)


def _state() -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps((random.getstate(), np.random.get_state()))), dtype=torch.uint8)


def _set_state(state: torch.Tensor) -> None:
    of_random, of_numpy = pickle.loads(state.numpy().tobytes())
    random.setstate(of_random)
    np.random.set_state(of_numpy)


_LIBRARY = torch.library.Library("bridge", "FRAGMENT")
for _schema, _kernel in (
    ("python_draw(str call, ScalarType dtype) -> Tensor", _draw),
    ("python_generators_state() -> Tensor", _state),
    ("set_python_generators_state(Tensor state) -> ()", _set_state),
):
    _name = _LIBRARY.define(_schema, tags=(torch.Tag.nondeterministic_seeded,))
    _LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
_OPS: Any = torch.ops.bridge
DRAW = _OPS.python_draw.default
STATE, SET_STATE = _OPS.python_generators_state.default, _OPS.set_python_generators_state.default


@functools.cache
def _register_shape() -> None:
    torch.library.register_fake("bridge::python_draw", lambda call, dtype: torch.empty((), dtype=dtype))


def is_below_one(call: str) -> bool:
    """Whether the argument of a DRAW draws from [0, 1)."""
    name, args, kwargs = json.loads(call)
    return name in _BELOW_ONE and not args and not kwargs


def replacements(floats: DataFloats) -> list[Replacement]:
    """What stands for the functions that draw, wherever a module has them.

    Args:
        floats: those of the run.
    """
    _register_shape()
    stand_ins = {name: _stand_in(name, floats) for name in _FUNCTIONS}
    of_arrays = drawn_arrays.replacements(_drawing_itself) if devices.target() != "GPU" else []
    found = ((holder, attribute, _NAMES[id(value)]) for holder, attribute, value in _places)
    return [*(Replacement(holder, attribute, stand_ins[name]) for holder, attribute, name in found), *of_arrays]


def _stand_in(name: str, floats: DataFloats) -> Callable[..., Any]:
    def draw(*args: Any, **kwargs: Any) -> Any:
        if _drawing.by_itself:
            return _FUNCTIONS[name](*args, **kwargs)
        if devices.target() == "GPU":
            raise Refusal(_LATER.format(name))
        if name == "random.choice":
            (sequence,) = (*args, *kwargs.values())
            return sequence[random.randrange(len(sequence))]
        call = json.dumps([name, _plain(name, args), _plain(name, kwargs)])
        with _drawing_nothing():
            found = _drawn(call)
        if isinstance(found, (int, np.integer)):
            return int(DRAW(call, torch.int64).item())
        if isinstance(found, (float, np.floating)):
            return DataFloat(floats, DRAW(call, torch.float64))
        given = drawn_arrays.drawn_at_once(found, *json.loads(call))
        if given is None:
            raise _refusal(name, "what is no number and no array")
        return given

    return draw


def _plain(name: str, value: Any) -> Any:
    """Arguments as JSON has them."""
    if type(value) is DataFloat:
        drawn_arrays.note_function(sys._getframe(2))
        raise AsksForData(_REFUSED.format(name, "by a number that depends on data"))
    if isinstance(value, dict):
        return {key: _plain(name, item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_plain(name, item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise _refusal(name, "by arguments that are neither numbers nor texts")


def _refusal(name: str, what: str) -> Refusal:
    drawn_arrays.note_function(sys._getframe(2))
    return Refusal(_REFUSED.format(name, what))


@contextlib.contextmanager
def _drawing_nothing() -> Iterator[None]:
    state = _state()
    try:
        yield
    finally:
        _set_state(state)


class _OfThread(threading.local):
    by_itself = False


_drawing = _OfThread()


@contextlib.contextmanager
def _drawing_itself() -> Iterator[Callable[[], bool]]:
    """Inside, Python draws as it does outside of a capture, and has drawn nothing after it. It gives what tells whether
    it has drawn by then."""
    with _drawing_nothing():
        _drawing.by_itself, before = True, _state()
        try:
            yield lambda: not torch.equal(_state(), before)
        finally:
            _drawing.by_itself = False
