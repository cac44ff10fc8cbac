"""Where loaded modules have certain values: `from random import random` puts one into the namespace of a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from bridge.programs.in_cpp import library


class Places:
    """The modules that have such values, with their names of them. A namespace is looked through again only when it has
    changed.

    Args:
        is_one: whether a value is one of these.
    """

    def __init__(self, is_one: Callable[[Any], bool]) -> None:
        self._is_one = is_one
        self.forget()

    def forget(self) -> None:
        """Look through all again: others are such values now."""
        self._version_of_modules = 0
        self._modules: list[ModuleType] = []
        self._namespaces: list[dict[str, Any]] = []
        self._versions: list[int] = []
        self._found: dict[int, list[tuple[str, Any]]] = {}  # by the version of the namespace

    def __iter__(self) -> Iterator[tuple[ModuleType, str, Any]]:
        version_of = library().ms_ext_version_of
        if self._version_of_modules != (version := version_of(sys.modules)):
            self._version_of_modules = version
            self._modules = [module for module in list(sys.modules.values()) if type(module) is ModuleType]
            self._namespaces = [*map(vars, self._modules)]
        versions = [*map(version_of, self._namespaces)]
        if versions != self._versions:
            now = zip(versions, self._namespaces, strict=True)
            known = self._found
            self._found = {one: known[one] if one in known else self._look(values) for one, values in now}
            self._versions = versions
            self._places = [
                (module, name, value)
                for version, module in zip(versions, self._modules, strict=True)
                for name, value in self._found[version]
            ]
        return iter(self._places)

    def _look(self, namespace: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in list(namespace.items()) if self._is_one(value)]
