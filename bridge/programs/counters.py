"""What a module does in much later calls: its numbers that change from call to call watch what they are compared with.

A counter decides about later calls where the function compares it, or what follows from it: `self.calls % 5 == 0`. The
first answer to such a question is the other one, so a capture goes where a later call would go. The numbers are far
ahead besides, for what asks nothing, as `self.table[self.calls % 4]`.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import operator
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, CodeType, FrameType, MethodType
from typing import Any, NamedTuple

import numpy as np
import torch

from bridge.programs import stand_ins
from bridge.programs.calls import Refusal
from bridge.programs.kept_elsewhere import is_own
from bridge.programs.named_values import Cells
from bridge.programs.replaced import Replacement, replaced
from bridge.programs.seen import LEADING, PLAIN, Seen, refill
from bridge.programs.written_down import slots_of

_FAR = 1_000_003  # a prime, as every second or hundredth call may be another one
_MOST_CALLS = 20_000
_LONGER = 1_009  # so many times what a list has grown by in a call
_KINDS = (int, float)
_WITH_HASHES = (set, frozenset, dict)
# Dictionaries and sets ask whether a number is the one that they have, which decides nothing by itself.
_ASKING = ("COMPARE_OP", "CONTAINS_OP")
_TWO = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "divmod", "lshift", "rshift", "and", "or", "xor",
)  # fmt: skip
_ONE = ("neg", "pos", "abs", "invert", "round", "floor", "ceil", "trunc")
_QUESTIONS = ("lt", "le", "eq", "ne", "gt", "ge")
_ORDER = ("lt", "le", "gt", "ge")
_RARE = {"eq": True, "ne": False, "rest": False}


def _save(*_: Any, **__: Any) -> None:
    raise Refusal("a later call saves tensors, which have no data in a graph's capture")


# A file of the user's stays as it is.
_SAVES = [Replacement(holder, "save", _save) for holder in (torch, torch.serialization)]


class _Watching:
    """A number that calls have changed: the present one, or one that is far ahead.

    Attributes:
        present: what it was in the last call.
        is_rest: whether it is left over in a division, as in `not self.calls % 5`.
    """

    present: Any
    is_rest = False

    def __bool__(self) -> bool:
        return _answer("rest" if self.is_rest else "bool", bool(self.present), bool(_far(self)), sys._getframe(1))

    def __hash__(self) -> int:
        member = _member(sys._getframe(1))
        return hash(_far(self)) if member is None else hash(member)

    def __repr__(self) -> str:
        return repr(self.present)

    def __format__(self, form: str) -> str:
        return format(self.present, form)

    def __reduce_ex__(self, _: Any) -> Any:
        return type(self.present), (self.present,)


def _far(value: Any) -> Any:
    """The number itself, which watches nothing; afterwards, in what nobody finds, what it was in the last call."""
    if isinstance(value, _Watching):
        if _asked.until is None:
            return value.present
        return int.__pos__(value) if isinstance(value, int) else float.__pos__(value)  # type: ignore[arg-type]
    return value


def _present(value: Any) -> Any:
    return value.present if isinstance(value, _Watching) else value


def _watching(far: Any, present: Any) -> Any:
    """A number that watches, or several in a tuple; anything else as it is."""
    if isinstance(far, tuple):
        return tuple(map(_watching, far, present))
    if type(far) not in _KINDS:
        return far
    number = (_Int if type(far) is int else _Float)(far)
    number.present = present
    return number


def _computing(name: str, is_reflected: bool = False) -> Any:
    """An operator of two numbers, or of one and what else it takes."""
    own: Any = divmod if name == "divmod" else getattr(operator, f"__{name}__")

    def method(self: Any, other: Any, *others: Any) -> Any:
        compute = pow if others else own
        if not isinstance(other, _KINDS):
            return compute(other, _far(self)) if is_reflected else compute(_far(self), other, *others)
        pair = (other, self) if is_reflected else (self, other)
        far = compute(*map(_far, (*pair, *others)))
        try:
            found = _watching(far, compute(*map(_present, (*pair, *others))))
        except ArithmeticError:  # the present number is zero
            return far
        if name == "mod" and isinstance(found, _Watching):
            found.is_rest = True
        return found

    return method


def _changing(name: str) -> Any:
    own = f"__{name}__"

    def method(self: Any, *args: Any) -> Any:
        return _watching(getattr(_far(self), own)(*args), getattr(_present(self), own)(*args))

    return method


def _asking(name: str) -> Any:
    ask = getattr(operator, name)

    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (*_KINDS, np.number)):
            return getattr(_far(self), f"__{name}__")(other)
        frame = sys._getframe(1)
        far = ask(_far(self), _far(other))
        if name in ("eq", "ne") and dis.opname[_code(frame.f_code)[frame.f_lasti]] not in _ASKING:
            return far
        return _answer(name, bool(ask(_present(self), _present(other))), bool(far), frame)

    return method


@functools.lru_cache(maxsize=1024)
def _code(code: CodeType) -> bytes:
    return code.co_code  # which Python makes anew each time


_METHODS = {f"__{name}__": _computing(name) for name in _TWO}
_METHODS |= {f"__r{name}__": _computing(name, is_reflected=True) for name in _TWO}
_METHODS |= {f"__{name}__": _changing(name) for name in _ONE}
_METHODS |= {f"__{name}__": _asking(name) for name in _QUESTIONS}


def _class(name: str, kind: type) -> Any:
    methods = {own: method for own, method in _METHODS.items() if hasattr(kind, own)}
    return type(name, (_Watching, kind), {**methods, "__hash__": _Watching.__hash__, "__module__": __name__})


_Int = _class("_Int", int)
_Float = _class("_Float", float)

_Answers = dict[tuple[Any, ...], bool]


class _Asked:
    """The questions that a run asks.

    Attributes:
        places: where, each the calls that led there.
        answers: the answers there, the first ones.
        others: those that a call has got before; None if the answers stay as they are.
        until: the frame that has called the function; None outside.
        is_turned: whether questions of order that no call has asked before get the answer that is not that of the
            number far ahead, as in `3 < self.calls < 5`.
        has_new: whether there were such questions.
    """

    def __init__(self) -> None:
        self.places: set[tuple[Any, ...]] = set()
        self.answers: _Answers = {}
        self.others: _Answers | None = None
        self.until: FrameType | None = None
        self.is_turned = self.has_new = False


_asked = _Asked()


def _place(frame: FrameType) -> tuple[Any, ...] | None:
    """Where the user's code asks; None if the function does not run, or other code asks."""
    if _asked.until is None or not stand_ins.is_watching() or not is_own(frame.f_code.co_filename):
        return None
    calls: dict[tuple[CodeType, int], None] = {}  # a function that calls itself asks in one place
    caller: FrameType | None = frame
    while caller is not None and caller is not _asked.until:
        calls[caller.f_code, caller.f_lasti] = None
        caller = caller.f_back
    return (*calls,)


def _answer(question: str, present: bool, far: bool, frame: FrameType) -> bool:
    """The other answer than before where the user's code asks first, then that of the number far ahead. What was not
    asked before gets the rare answer, as in `self.calls > 1000 and self.calls % 4 == 0`."""
    place = _place(frame)
    if place is None:
        return far
    if _asked.others is None:
        _asked.answers.setdefault(place, present)
        return present
    if place in _asked.places:
        return far
    _asked.places.add(place)
    if place in _asked.others:
        return not _asked.others[place]
    if question in _ORDER:
        _asked.has_new = True
        return far != _asked.is_turned
    return _RARE.get(question, far)


def _member(frame: FrameType) -> Any:
    """A number in the set or dictionary that is asked whether it has another one (`self.calls in self.milestones`), if
    it has not had that before: it only asks numbers of the same hash. None if there is none."""
    if _asked.until is None or _asked.others is None or dis.opname[_code(frame.f_code)[frame.f_lasti]] != "CONTAINS_OP":
        return None
    place = _place(frame)
    if place is None or place in _asked.places or place in _asked.others:
        return None
    asked = _named_before(frame)
    return next((item for item in asked if type(item) in _KINDS), None) if isinstance(asked, _WITH_HASHES) else None


def _named_before(frame: FrameType) -> Any:
    """What the instructions before the one at hand find: a constant, or a variable or what its attributes lead to."""
    before = [one for one in dis.get_instructions(frame.f_code) if one.offset < frame.f_lasti]
    names: list[str] = []
    while before and before[-1].opname == "LOAD_ATTR":
        names.insert(0, before.pop().argval)
    if not before or not before[-1].opname.startswith("LOAD_"):
        return None
    first = before[-1]
    found = first.argval
    if first.opname != "LOAD_CONST":
        found = {**frame.f_globals, **frame.f_locals}.get(found)
    return functools.reduce(lambda value, name: getattr(value, name, None), names, found)


def refuse_many(calls: int) -> None:
    """Raise a Refusal if a capture with numbers far ahead calls PyTorch so often, as a loop of so many steps does."""
    if calls > _MOST_CALLS and _asked.until is not None and _asked.others is not None:
        raise Refusal("a later call would call PyTorch very often")


class Root(NamedTuple):
    """A value that has a name.

    Args:
        name: the name.
        holder: the dictionary or class that has it.
        key: where.
        seen: what was seen of it.
    """

    name: str
    holder: Any
    key: Any
    seen: Any


class _InATuple:
    """A tuple in some place, of which another one takes the place when an item changes."""

    def __init__(self, holder: Any, key: Any) -> None:
        self._holder, self._key = holder, key

    def __getitem__(self, position: int) -> Any:
        return _get(self._holder, self._key)[position]

    def __setitem__(self, position: int, value: Any) -> None:
        own = _get(self._holder, self._key)
        items = [*own[:position], value, *own[position + 1 :]]
        _set(self._holder, self._key, type(own)(*items) if hasattr(own, "_fields") else type(own)(items))


_WITH_ITEMS = (Cells, list, deque, _InATuple)


def _get(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict) and not isinstance(holder, Cells):
        return dict.__getitem__(holder, key)
    if isinstance(holder, _WITH_ITEMS):
        return holder[key]
    return vars(holder)[key] if key in getattr(holder, "__dict__", ()) else getattr(holder, key)


def _set(holder: Any, key: Any, value: Any) -> None:
    if isinstance(holder, dict) and not isinstance(holder, Cells):
        dict.__setitem__(holder, key, value)
    elif isinstance(holder, _WITH_ITEMS):
        holder[key] = value
    elif isinstance(holder, type):
        type.__setattr__(holder, key, value)
    elif key in getattr(holder, "__dict__", ()):
        vars(holder)[key] = value
    else:
        object.__setattr__(holder, key, value)


def _all(roots: Iterable[Root]) -> Iterator[tuple[tuple[Any, ...], Any, Any, Seen]]:
    """For each value in some others: the way there, what holds it and under which key, and what was seen of it. Nothing
    holds what cannot be set."""
    left: list[tuple[tuple[Any, ...], Any, Any, Seen]] = [
        ((root.name,), root.holder, root.key, root.seen) for root in roots
    ]
    met: set[int] = set()
    while left:
        path, holder, key, seen = left.pop()
        value = seen.value
        if isinstance(seen.held, (dict, np.ndarray, set)):
            if id(value) in met:
                continue
            met.add(id(value))
        yield path, holder, key, seen
        if isinstance(seen.held, dict):
            own = value if _may_be_set(value) else None
            if isinstance(value, tuple) and holder is not None:
                own = _InATuple(holder, key)
            left += [((*path, name), own, name, item) for name, item in seen.held.items()]


def _may_be_set(value: Any) -> bool:
    """Whether what a value holds is its own, and may be another."""
    if isinstance(value, (tuple, functools.partial, *LEADING, MethodType, BuiltinFunctionType)):
        return False
    return isinstance(value, (dict, list, deque)) or hasattr(value, "__dict__") or bool(slots_of(value))


class _Change(NamedTuple):
    """Something that a call has changed.

    Args:
        name: that of what has it.
        note: has a number note what it is compared with; None of other things.
        put: puts there what it may be much later.
        put_back: puts back what was there.
    """

    name: str
    note: Callable[[], None] | None
    put: Callable[[], None]
    put_back: Callable[[], None]


class _Changes:
    """What a call has changed, if it is known what that may be much later.

    Args:
        before: what was there before the call, by names.
        look: gives what is there now, by names.
    """

    def __init__(self, before: Iterable[Root], look: Callable[[], Iterable[Root]]) -> None:
        self._look, self._roots = look, [*look()]
        self._now = {path: (holder, key, seen) for path, holder, key, seen in _all(self._roots)}
        changes = (_change(path[0], seen, *self._now[path]) for path, _, _, seen in _all(before) if path in self._now)
        self._changes = [change for change in changes if change is not None]

    @property
    def names(self) -> list[str]:
        """Those of what has it."""
        return sorted({change.name for change in self._changes})

    def __enter__(self) -> None:
        if self._changes:
            stand_ins.beginnings.append(self._begin)

    def __exit__(self, *_: object) -> None:
        if self._changes:
            stand_ins.beginnings.remove(self._begin)
            _asked.until = None
            self._put_back()
            left = [(holder, key, seen.value) for _, holder, key, seen in _all(self._look())]
            for holder, key, value in left:
                _take_out(holder, key, value)
            for _, _, value in left:
                _take_out_of_keys(value)

    def _begin(self) -> None:
        """A run of the function begins."""
        _asked.until = sys._getframe(2)
        for put in self._at_begin():
            with contextlib.suppress(Exception):  # of what cannot be set
                put()

    def _at_begin(self) -> Iterator[Callable[[], None]]:
        raise NotImplementedError

    def _put_back(self) -> None:
        pass


class Noted(_Changes):
    """Inside, while a function that is watched runs, numbers that a call has changed note what they are compared with.

    Attributes:
        answers: what the function has asked.
    """

    def __init__(self, before: Iterable[Root], look: Callable[[], Iterable[Root]]) -> None:
        super().__init__(before, look)
        self.answers: _Answers = {}

    def _at_begin(self) -> Iterator[Callable[[], None]]:
        _asked.answers = self.answers
        _asked.others = None
        yield from (change.note for change in self._changes if change.note is not None)

    def later(self) -> Counters:
        """The same after another call."""
        return Counters(self._roots, self._look, self.answers)


class Counters(_Changes):
    """Inside, while a function that is watched runs, what a call has changed is what it may be much later.

    Args:
        before, look: see above.
        answers: see Noted.
    """

    def __init__(self, before: Iterable[Root], look: Callable[[], Iterable[Root]], answers: _Answers) -> None:
        super().__init__(before, look)
        self._answers, self._wanted = answers, self.names
        self._saves = replaced(_SAVES)

    def __enter__(self) -> None:
        super().__enter__()
        self._saves.__enter__()

    def __exit__(self, *error: object) -> None:
        self._saves.__exit__(*error)
        super().__exit__(*error)

    def rounds(self) -> Iterator[None]:
        """Once, or twice if questions of order were new: enter this in each."""
        _asked.is_turned = _asked.has_new = False
        yield
        if _asked.has_new:
            _asked.is_turned = True
            yield

    def change_only(self, name: str) -> None:
        """From now on, have what has other names be as it is."""
        self._wanted = [name]

    def _at_begin(self) -> Iterator[Callable[[], None]]:
        _asked.places, _asked.others = set(), self._answers
        yield from (change.put for change in self._changes if change.name in self._wanted)

    def _put_back(self) -> None:
        for change in self._changes:
            with contextlib.suppress(Exception):  # a list has become shorter
                change.put_back()
        for holder, key, seen in self._now.values():
            if holder is not None and isinstance(seen.value, (*PLAIN, type(None))):
                with contextlib.suppress(Exception):
                    if _get(holder, key) is not seen.value:
                        _set(holder, key, seen.value)


def _change(name: str, before: Seen, holder: Any, key: Any, now: Seen) -> _Change | None:
    one, value = before.value, now.value
    if holder is not None and type(value) in _KINDS and type(one) is type(value):
        if one == value or value != value:
            return None
        same, far = _watching(value, value), _watching(value + (value - one) * _FAR, one)
        return _Change(
            name,
            lambda: _set(holder, key, same),
            lambda: _set(holder, key, far),
            lambda: _set(holder, key, value),
        )
    if isinstance(before.held, np.ndarray) and isinstance(now.held, np.ndarray):
        was, data = before.held, now.held
        if data.dtype.kind not in "iuf" or (was.shape, was.dtype) != (data.shape, data.dtype):
            return None
        if not value.flags.writeable or np.array_equal(was, data):
            return None
        with np.errstate(all="ignore"):
            later = data + (data - was) * np.asarray(_FAR).astype(data.dtype)
        return _Change(name, None, lambda: _write(value, later), lambda: _write(value, data))
    if isinstance(value, (list, deque)) and isinstance(before.held, dict) and isinstance(now.held, dict):
        items, grown = [*value], len(now.held) - len(before.held)
        if isinstance(value, deque) and value.maxlen is not None and len(items) == value.maxlen:
            had = [item.value for item in before.held.values()]
            grown = max(grown, any(map(operator.is_not, had, items)))
        if items and grown > 0:
            more = items[-1:] * (grown * _LONGER)
            return _Change(name, None, lambda: value.extend(more), lambda: refill(value, dict(enumerate(items))))
    return None


def _write(array: Any, data: Any) -> None:
    array[...] = data


def _take_out(holder: Any, key: Any, value: Any) -> None:
    """Have no number that watches be a value."""
    if isinstance(value, _Watching) and holder is not None:
        with contextlib.suppress(Exception):
            _set(holder, key, value.present)


def _take_out_of_keys(value: Any) -> None:
    """Have none be in a set, or a key of a dictionary."""
    if isinstance(value, set) and any(isinstance(item, _Watching) for item in value):
        numbers = {*map(_present, value)}
        value.clear()
        value.update(numbers)
    elif isinstance(value, dict) and any(isinstance(item, _Watching) for item in dict.keys(value)):
        items = {_present(name): item for name, item in dict.items(value)}
        dict.clear(value)
        dict.update(value, items)
