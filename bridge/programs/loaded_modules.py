"""Where loaded modules have certain values: `from random import random` puts one into the namespace of a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from bridge.programs.in_cpp import library


@dataclass(frozen=True)
class _Looked:
    """What was found.

    Attributes:
        versions: of the namespaces of the modules.
        found: the names and values in a namespace, by its version.
        places: all of them.
    """

    versions: list[int] = field(default_factory=list)
    found: dict[int, list[tuple[str, Any]]] = field(default_factory=dict)
    places: list[tuple[ModuleType, str, Any]] = field(default_factory=list)


class Places:
    """The modules that have such values, with their names of them. A namespace is looked through again only when it has
    changed. Several threads may ask.

    Args:
        is_one: whether a value is one of these.
    """

    def __init__(self, is_one: Callable[[Any], bool]) -> None:
        self._is_one = is_one
        self._modules: tuple[int, list[ModuleType], list[dict[str, Any]]] = (0, [], [])
        self.forget()

    def forget(self) -> None:
        """Look through all again: others are such values now."""
        self._looked = _Looked()

    def __iter__(self) -> Iterator[tuple[ModuleType, str, Any]]:
        version_of = library().ms_ext_version_of
        version, modules, namespaces = self._modules
        if version != (now := version_of(sys.modules)):
            modules = [module for module in list(sys.modules.values()) if type(module) is ModuleType]
            namespaces = [*map(vars, modules)]
            self._modules = now, modules, namespaces
        looked, versions = self._looked, [*map(version_of, namespaces)]
        if versions != looked.versions:
            pairs = zip(versions, namespaces, strict=True)
            found = {one: looked.found[one] if one in looked.found else self._in(values) for one, values in pairs}
            named = zip(modules, versions, strict=True)
            places = [(module, *place) for module, version in named for place in found[version]]
            looked = self._looked = _Looked(versions, found, places)
        return iter(looked.places)

    def _in(self, namespace: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in list(namespace.items()) if self._is_one(value)]
