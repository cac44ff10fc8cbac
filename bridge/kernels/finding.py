"""Finds the source that a function's shim can be written behind: one that defines the function, or sees it declared."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Sequence

_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# What may stand in front of a name where it is not declared, but used.
_NO_TYPE = {"return", "new", "delete", "else", "throw", "case", "goto", "co_return", "and", "or", "not"}


def source_of(function: str, sources: Sequence[pathlib.Path], folders: Sequence[pathlib.Path]) -> pathlib.Path | None:
    """The source that has a function, C++ rather than CUDA; None if there is none.

    Args:
        function: its name, with namespaces.
        sources: where to look, and in what they include with quotes.
        folders: where such headers are besides the folders of those that include them.
    """
    *namespaces, name = function.split("::")
    ordered = sorted(sources, key=lambda path: path.suffix == ".cu")
    own = {path: _code(path) for path in ordered}
    seen = {path: "\n".join(map(_code, _closure(path, folders))) for path in ordered}
    fitting = [path for path in ordered if all(re.search(rf"\b{re.escape(one)}\b", seen[path]) for one in namespaces)]
    for texts, found in ((own, _defines), (seen, _declares), (seen, _mentions)):
        for path in fitting:
            if found(texts[path], name):
                return path
    return None


def _code(path: pathlib.Path) -> str:
    """The text of a file without comments and strings."""
    return _COMMENT_OR_STRING.sub(" ", path.read_text(errors="replace"))


def _closure(path: pathlib.Path, folders: Sequence[pathlib.Path]) -> Iterator[pathlib.Path]:
    """A file, and what it includes with quotes and can be found."""
    known: set[pathlib.Path] = set()
    left = [path]
    while left:
        current = left.pop()
        if current in known:
            continue
        known.add(current)
        yield current
        for name in _INCLUDE.findall(current.read_text(errors="replace")):
            candidates = [folder / name for folder in (current.parent, *folders)]
            left += [candidate for candidate in candidates if candidate.is_file()][:1]


def _declarations(text: str, name: str) -> Iterator[int]:
    """Where the parameters begin wherever the name is declared: a type stands in front of it."""
    for match in re.finditer(rf"(\w+|[>&*])\s*(?<![\w:.])(?:\w+\s*::\s*)*{re.escape(name)}\s*\(", text):
        if match[1] not in _NO_TYPE and not match[1].isdigit():
            yield match.end()


def _defines(text: str, name: str) -> bool:
    return any(_behind_parameters(text, start) == "{" for start in _declarations(text, name))


def _declares(text: str, name: str) -> bool:
    return any(_behind_parameters(text, start) in ("{", ";") for start in _declarations(text, name))


def _behind_parameters(text: str, start: int) -> str:
    """The first "{" or ";" behind the parenthesis that was opened before `start`."""
    depth = 1
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            rest = re.match(r"\s*(?:const|noexcept|override|->[^{;]*)*\s*([{;])", text[i + 1 : i + 400])
            return rest[1] if rest else ""
    return ""


def _mentions(text: str, name: str) -> bool:
    """For functions that macros define."""
    return re.search(rf"\b{re.escape(name)}\b", text) is not None
