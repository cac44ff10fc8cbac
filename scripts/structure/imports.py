"""The imports of bridge, read from its sources, those in functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple


class Import(NamedTuple):
    """That one module imports another."""

    importer: str
    imported: str
    line: int


def modules(root: Path) -> dict[str, Path]:
    """Every module of bridge by its name: "bridge" and "bridge.op" are what the __init__.py of these folders are."""
    found = {}
    for path in sorted((root / "bridge").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(known: Mapping[str, Path]) -> list[Import]:
    """Every import of one of these modules by another."""
    found = []
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text())):
            wanted = _wanted(node, name if path.name == "__init__.py" else name.rpartition(".")[0])
            targets = {known_as for one in wanted if (known_as := _known(one, known)) and known_as != name}
            found += [Import(name, target, getattr(node, "lineno", 0)) for target in sorted(targets)]
    return found


def _wanted(node: ast.AST, package: str) -> Iterator[str]:
    """What a statement imports, by its full name: of `from a import b` a.b, which may be a module or a name in one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{module}.{alias.name}" for alias in node.names)


def _known(name: str, known: Mapping[str, Path]) -> str | None:
    """The module that the name is, or is in."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def circles(edges: list[Import]) -> list[list[str]]:
    """Modules that import each other, directly or through others: the strongly connected parts with more than one."""
    after: dict[str, set[str]] = {}
    for edge in edges:
        after.setdefault(edge.importer, set()).add(edge.imported)
    reached = {name: _reached(name, after) for name in after}
    groups = {frozenset(other for other in reached[name] if name in reached.get(other, ())) for name in after}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reached(start: str, after: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        for name in after.get(left.pop(), ()):
            if name not in found:
                found.add(name)
                left.append(name)
    return found
