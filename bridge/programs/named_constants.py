"""What own code finds by name and a graph takes for constant: numbers, strings, functions, tensors and the like, and
lists and dictionaries of them, in its files, around its functions, and in attributes of its Cells and objects. Of a
tensor or array it counts which one it is, not what it holds."""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

import mindspore as ms

from bridge.programs.configurations import MANY
from bridge.programs.named_values import Place, places_of_functions
from bridge.programs.twin_object import is_object
from bridge.programs.unchanged import Watched
from bridge.programs.written_down import function_of, is_users_function

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (dict, list, tuple)
_DEPTH = 8  # of containers in containers
_Key = tuple[str, str, int]


class _Same:
    """An object that equals itself only."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value


class _Named(NamedTuple):
    """A place, and what is there.

    Args:
        place: where the code looks.
        value: the object.
        form: what tells it from others (`_form`).
        objects: those in it whose attributes are named, too.
    """

    place: Place
    value: Any
    form: Any
    objects: list[Any]

    def is_as_it_was(self) -> bool:
        value = self.place.get(self.place.name)
        if value is not self.value or _form(value) != self.form:
            return False
        now = [*_objects_in(value)]
        return len(now) == len(self.objects) and all(map(operator.is_, now, self.objects))


class NamedConstants:
    """Those of a function or Cell, by numbers: equal ones have the same number.

    Args:
        target: the function or Cell.
        cells: those whose code it runs.

    Attributes:
        last_number: that of the last call.
    """

    def __init__(self, target: Any, cells: Sequence[ms.nn.Cell]) -> None:
        self._target = target
        self._cells = cells
        self._own: set[_Key] = set()  # those that calls change
        self._named: dict[_Key, _Named] = {}
        self._met: list[dict[_Key, Any]] = []
        self.last_number = 0

    def number(self) -> int:
        """That of what is named at hand."""
        if not self._met:
            self._named = self._look()
            self._met = [self._forms()]
        elif not all(named.is_as_it_was() for named in self._named.values()):
            before = self._forms()
            self._named = self._look()
            now = self._forms()
            if now not in self._met:
                self._met.append(now)
                self._warn(_others(now, before))
            self.last_number = self._met.index(now)
        return self.last_number

    def now(self) -> dict[_Key, Any]:
        """What tells those at hand from others."""
        return {key: named.form for key, named in self._look().items()}

    def changed(self, before: dict[_Key, Any]) -> str:
        """The name of one that is another than before; empty if there is none.

        Args:
            before: what `now` gave.
        """
        where, name, _ = min(_others(before, self.now()), default=("", "", 0))
        return f"{where}.{name}".strip(".")

    def settle(self) -> None:
        """A call has ended: what is otherwise now was changed by that."""
        before = self._forms()
        self._named = self._look()
        others = _others(before, self._forms())
        self._own |= others
        for constants in (self._named, *self._met):
            for key in others:
                constants.pop(key, None)

    def watched(self) -> Watched:
        """What the number follows from."""
        named = self._named.values()
        containers = [part for one in named for part in _containers(one.value)]
        return Watched(containers, [], [], [(one.place.get, (one.place.name,), one.value) for one in named])

    def _forms(self) -> dict[_Key, Any]:
        return {key: named.form for key, named in self._named.items()}

    def _look(self) -> dict[_Key, _Named]:
        found: dict[_Key, _Named] = {}
        met: Counter[tuple[str, str]] = Counter()
        for place in self._places():
            value = place.get(place.name)
            key = place.where, place.name, met[place.where, place.name]
            met[place.where, place.name] += 1
            if key not in self._own:
                found[key] = _Named(place, value, _form(value), [*_objects_in(value)])
        return found

    def _places(self) -> Iterator[Place]:
        """Where the function and what it calls look: methods and attributes count if the code has their names."""
        owner = self._target.__self__ if isinstance(self._target, MethodType) else self._target
        roots = [owner, *self._cells]
        functions = [self._target, *_methods(roots, {"construct", "__call__"})]
        while True:
            names: set[str] = set()
            found = [*places_of_functions(functions, names)]
            objects = [*roots, *(one for place in found for one in _objects_in(place.get(place.name)))]
            attributes = [*_attributes(objects, names)]
            objects += (one for place in attributes for one in _objects_in(place.get(place.name)))
            known = {*map(id, functions)}
            more = [function for function in _methods(objects, names) if id(function) not in known]
            if not more:
                return itertools.chain(found, attributes)
            functions += more

    def _warn(self, others: set[_Key]) -> None:
        if len(self._met) == MANY:
            where, name, _ = min(others)
            warnings.warn(
                f"{where}.{name} was changed again: {MANY} graphs were compiled for the values that a function finds "
                "by name, one for each. Give a value that changes often as an argument",
                stacklevel=1,
            )


def _methods(objects: Iterable[Any], names: set[str]) -> Iterator[FunctionType]:
    """The functions of their classes with these names."""
    for kind in dict.fromkeys(map(type, objects)):
        for name in sorted(names & {*itertools.chain.from_iterable(map(vars, kind.__mro__))}):
            function = function_of(inspect.getattr_static(kind, name, None))
            if isinstance(function, FunctionType) and is_users_function(function):
                yield function


def _attributes(objects: Iterable[Any], names: set[str]) -> Iterator[Place]:
    """The attributes with these names, of these objects and of the user's that they lead to."""
    left = [*objects]
    done: set[int] = set()
    while left:
        one = left.pop()
        if id(one) not in done:
            done.add(id(one))
            own = getattr(one, "__dict__", {})
            of_class = {*itertools.chain.from_iterable(map(vars, type(one).__mro__))}
            for name in sorted((names & (own.keys() | of_class)) - {"training"}):  # the mode is no setting (modes.py)
                get = own.get if name in own else functools.partial(_attribute, one)
                yield Place(type(one).__qualname__, name, get)
                left += _objects_in(get(name))


def _attribute(owner: Any, name: str) -> Any:
    """An attribute of an object or its class, as it stands there; None if there is none."""
    if name in getattr(owner, "__dict__", {}):
        return vars(owner)[name]
    found = next((vars(kind)[name] for kind in type(owner).__mro__ if name in vars(kind)), None)
    return getattr(owner, name, None) if isinstance(found, MemberDescriptorType) else found


def _is_users_object(value: Any) -> bool:
    """Whether its attributes count."""
    return not isinstance(value, (type, ModuleType)) and is_object(value)


def _objects_in(value: Any) -> Iterator[Any]:
    """A value that is one of these, or those in a container."""
    if _is_users_object(value):
        yield value
    for container in _containers(value):
        yield from filter(_is_users_object, _items(container))


def _form(value: Any, depth: int = 0) -> Any:
    """What tells a value from others."""
    if isinstance(value, _PLAIN):
        return type(value), repr(value) if isinstance(value, (float, complex)) else value  # -0.0 and nan
    if isinstance(value, _CONTAINERS) and depth < _DEPTH:
        keys = [_form(key, depth + 1) for key in dict.keys(value)] if isinstance(value, dict) else []
        return type(value), keys, [_form(item, depth + 1) for item in _items(value)]
    return type(value) if _is_users_object(value) else _Same(value)  # the attributes of an object are named, too


def _containers(value: Any, depth: int = 0) -> Iterator[Any]:
    """Those whose items are in its form."""
    if isinstance(value, _CONTAINERS) and depth < _DEPTH:
        yield value
        for item in _items(value):
            yield from _containers(item, depth + 1)


def _items(container: Any) -> list[Any]:
    """What it holds, whatever its class makes of that."""
    kind = next(kind for kind in _CONTAINERS if isinstance(container, kind))
    return [*dict.values(container)] if kind is dict else [*kind.__iter__(container)]


def _others(left: dict[_Key, Any], right: dict[_Key, Any]) -> set[_Key]:
    return {key for key in left.keys() | right.keys() if left.get(key) != right.get(key)}
