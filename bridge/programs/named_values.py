"""Where the user's code finds values by name: in its files, in other modules of the user's, in classes and around its
functions."""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from bridge.programs.written_down import all_in, function_of, is_of_package, is_users_function, passed_on


class Place(NamedTuple):
    """A name somewhere.

    Args:
        where: what has it.
        name: the name.
        get: gives the value of a name there.
        holder: the dictionary or class that holds the value, if it is known.
    """

    where: str
    name: str
    get: Callable[[str], Any]
    holder: Any = None


def places(sources: Iterable[Any]) -> Iterator[Place]:
    """The names of values that the user's code finds, and of functions and classes in the modules of packages.

    Args:
        sources: classes, functions and methods that have the code. What they call is the user's code too, and so is the
            code of the objects' classes that they find.
    """
    return _places(sources, lambda value: [*_functions_in(value), type(value)], set())


def places_of_functions(sources: Iterable[Any], all_names: set[str]) -> Iterator[Place]:
    """The same, without the code of the objects' classes.

    Args:
        sources: see places.
        all_names: takes all names that the code has.
    """
    return _places(sources, _functions_in, all_names)


def _places(sources: Iterable[Any], behind: Callable[[Any], Iterable[Any]], all_names: set[str]) -> Iterator[Place]:
    """Args: see places; what has the code of other values than functions and classes; see places_of_functions."""
    done: set[int] = set()
    left = [*sources]
    while left:
        source = left.pop()
        if isinstance(source, MethodType):
            source = source.__func__
        if id(source) in done or not _is_users(source):
            continue
        done.add(id(source))
        passed = passed_on(source.__code__) if isinstance(source, FunctionType) else frozenset[str]()
        for where, names, values, inside in _namespaces(source):
            all_names |= inside
            holder = None if isinstance(values, _Defaults) else source if isinstance(source, type) else values
            for place in _places_in(where, {*names}, values, inside, passed, holder):
                value = function_of(place.get(place.name))
                is_pythons = (place.name.startswith("__") and place.name.endswith("__")) or place.name == "_abc_impl"
                if isinstance(value, (FunctionType, type)):
                    left.append(value)
                elif not is_pythons:
                    left += behind(value)
                if not is_pythons:
                    yield place


def _places_in(
    where: str,
    names: set[str],
    values: Mapping[str, Any],
    inside: frozenset[str],
    passed: frozenset[str],
    holder: Any,
) -> Iterator[Place]:
    """The names that find values among some, and in the modules that they lead to."""
    own = values
    modules = [(where, names, values, False)]
    done: set[int] = set()
    while modules:
        where, names, values, is_packages = modules.pop()
        for name in sorted(names & values.keys()):
            value = values[name]
            if callable(value) or not is_packages:
                yield Place(where, name, values.get, holder if values is own else values)
            if isinstance(value, ModuleType) and id(value) not in done:
                done.add(id(value))
                is_of_one = is_of_package(value.__name__)
                led_to = all_in(value) if name in passed and not is_of_one else {*inside}
                modules.append((value.__name__, led_to, vars(value), is_of_one))


def _functions_in(value: Any) -> list[Any]:
    """The functions and classes in a container, as in a table of activations."""
    if isinstance(value, dict):
        items: Iterable[Any] = dict.values(value)  # a table's own methods may import all that it knows
    else:
        items = value if isinstance(value, (list, tuple)) else ()
    return [one for one in map(function_of, items) if isinstance(one, (FunctionType, MethodType, type))]


def shadows(kind: type) -> Iterator[Place]:
    """Where a class and those that it derives from have no value, but another one further on has: a value there would
    be the one that code finds."""
    own = [one for one in kind.__mro__ if _is_users(one)]
    for i, one in enumerate(own):
        for where, names, _, _ in (space for above in own[i + 1 :] for space in _namespaces(above)):
            for name in sorted({*names} - vars(one).keys()):
                if not name.startswith("__"):
                    yield Place(f"{where}, of {one.__qualname__}", name, vars(one).get)


def _is_users(source: Any) -> bool:
    return not is_of_package(source.__module__) if isinstance(source, type) else is_users_function(source)


def _namespaces(source: Any) -> Iterator[tuple[str, Collection[str], Mapping[str, Any], frozenset[str]]]:
    """Of a class or function: where it finds values, their names there, the values, and all names that it has."""
    if isinstance(source, type):
        yield f"{source.__module__}.{source.__qualname__}", vars(source), vars(source), frozenset()
        return
    names, inside = _names(source.__code__)
    yield source.__module__, names, source.__globals__, inside
    package = source.__globals__.get("__package__")
    found = ((name, sys.modules.get(name) or sys.modules.get(f"{package}.{name}")) for name in inside)
    imported = {name: module for name, module in found if module is not None and name not in source.__globals__}
    yield source.__module__, imported, imported, inside
    defaults = _Defaults(source)
    yield source.__qualname__, defaults, defaults, inside
    yield source.__qualname__, vars(source), vars(source), inside
    if source.__closure__:
        cells = Cells(zip(source.__code__.co_freevars, source.__closure__, strict=True))
        yield source.__qualname__, cells, cells, inside


class _Defaults(dict[str, Any]):
    """Those of a function, as they are when somebody asks."""

    def __init__(self, function: FunctionType) -> None:
        super().__init__({"defaults": "__defaults__", "keyword defaults": "__kwdefaults__"})
        self._function = function

    def __getitem__(self, name: str) -> Any:
        return getattr(self._function, super().__getitem__(name))

    def get(self, name: str, default: Any = None) -> Any:
        return self[name]


class Cells(dict[str, Any]):
    """The variables around a function."""

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return super().__getitem__(name).cell_contents
        except ValueError:  # nothing is assigned yet
            return default

    def __setitem__(self, name: str, value: Any) -> None:
        super().__getitem__(name).cell_contents = value


@functools.cache
def _names(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The names that code asks its file for, and all that it has."""
    asked = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    names = {*code.co_names}
    for value in code.co_consts:
        if isinstance(value, CodeType):
            more, others = _names(value)
            asked |= more
            names |= others
    return frozenset(asked), frozenset(names)
