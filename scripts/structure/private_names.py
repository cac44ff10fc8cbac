"""MindSpore's private names stand in one Python module and one folder of C++, where a new release of it is met."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from .breach import Breach

PYTHON = ("bridge", "aten_ops")
PYTHON_HOME = Path("bridge/_mindspore.py")
CPP = ("ms_ext", "aten_ops")
CPP_HOME = Path("ms_ext/mindspore")

# Names that are private without an underscore in what is imported: MindSpore documents none of them.
UNDOCUMENTED = {"constexpr", "isconstant", "jit_context"}
# Attributes of MindSpore's objects, wherever they come from, and names that its compiler looks for.
ATTRIBUTES = {
    "_pynative_executor",
    "_requires_grad",
    "_run_op",
    "_get_cache_prim",
    "_reset_op_seed",
    "_c_expression",
    "__ms_class__",
    "__parse_method__",
}


def breaches(root: Path, mindspore_include: Path) -> list[Breach]:
    """What is against the rule.

    Args:
        root: of the tree.
        mindspore_include: the folder `include` of the installed MindSpore.
    """
    found = []
    for folder in PYTHON:
        for path in sorted((root / folder).rglob("*.py")):
            if path != root / PYTHON_HOME:
                found += _in_python(path)
    headers = _headers(mindspore_include)
    for folder in CPP:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu") and not path.is_relative_to(root / CPP_HOME):
                found += _in_cpp(path, root, headers)
    return found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def _in_python(path: Path) -> list[Breach]:
    tree = ast.parse(path.read_text())
    aliases = _of_mindspore(tree)
    found: dict[tuple[int, str], None] = {}  # each once, in order
    for node in ast.walk(tree):
        for name in (*_imported(node), *_used(node, aliases)):
            found[getattr(node, "lineno", 0), name] = None
    return [Breach(path, line, f"{name} is private to MindSpore: {PYTHON_HOME} has such names") for line, name in found]


def _of_mindspore(tree: ast.AST) -> set[str]:
    """The names in a module that stand for something of MindSpore's."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            ours = [alias for alias in node.names if alias.name.split(".")[0] == "mindspore"]
            found |= {alias.asname or "mindspore" for alias in ours}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mindspore" and not node.level:
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def _imported(node: ast.AST) -> Iterator[str]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    for name in names:
        first, *parts = name.split(".")
        if first == "mindspore" and (any(map(_is_private, parts)) or (parts[-1:] and parts[-1] in UNDOCUMENTED)):
            yield name


def _used(node: ast.AST, aliases: set[str]) -> Iterator[str]:
    """Private names in an expression, an assignment or a text that is nothing but the name."""
    if isinstance(node, ast.Attribute):
        if node.attr in ATTRIBUTES or (_is_private(node.attr) and _root(node.value) in aliases):
            yield node.attr
    elif isinstance(node, ast.Name) and node.id in ATTRIBUTES:
        yield node.id
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in ATTRIBUTES:
        yield node.value


def _root(node: ast.AST) -> str:
    """The name that a chain of attributes begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@functools.cache
def _headers(include: Path) -> frozenset[str]:
    """What an #include of one of MindSpore's headers may say: every end of every path, from a folder on."""
    found = set()
    for path in include.rglob("*.h"):
        parts = path.relative_to(include).parts
        if "third_party" not in parts:
            found |= {"/".join(parts[start:]) for start in range(len(parts))}
    return frozenset(found)


def _in_cpp(path: Path, root: Path, headers: frozenset[str]) -> Iterator[Breach]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
        if not match or match[1] not in headers:
            continue
        is_ours = any((folder / match[1]).is_file() for folder in (path.parent, root / "ms_ext"))
        if not is_ours:
            yield Breach(path, number, f"{match[1]} is MindSpore's: {CPP_HOME}/ has what includes its headers")
