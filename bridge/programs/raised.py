"""Questions of which one answer leads to an error at once: `if not valid.all(): raise ValueError(...)`.

A graph takes the other one, and need not run the function to find out.
"""

from __future__ import annotations

import ast
import functools
import linecache
import pathlib
import textwrap
from types import FrameType

import torch

from bridge.programs.messages import asking

_OWN = f"{pathlib.Path(__file__).parents[1]}/"
_TORCH = f"{pathlib.Path(torch.__file__).parent}/"
# Of PyTorch's files, those whose errors are their callers'. The others hand on what they catch.
_DISTRIBUTIONS = f"{_TORCH}distributions/"
# What may stand beside a `raise` in what an answer leads to.
_PLAIN = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


def answer_without_error(frame: FrameType) -> tuple[bool, str] | None:
    """The answer to a question that this frame asks which leads to no error, and what the other one leads to; None if
    neither raises one there, or something may catch it."""
    statement = asking(frame)
    if statement is None:
        return None
    if isinstance(statement, ast.Assert):
        value, raised = True, ast.unparse(statement)
    else:
        *before, last = statement.body
        if not isinstance(last, ast.Raise) or not all(isinstance(one, _PLAIN) for one in before):
            return None
        value, raised = False, ast.unparse(last)
    test = statement.test
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value, test = not value, test.operand
    return None if _is_caught(frame) else (value, f"`{textwrap.shorten(raised, 160)}`")


def _is_caught(frame: FrameType | None) -> bool:
    """Whether the program may go on after an error in this frame."""
    while frame is not None and not frame.f_code.co_filename.startswith(_OWN):
        file = frame.f_code.co_filename
        if file.startswith(_DISTRIBUTIONS) or not file.startswith(_TORCH):
            lines = _caught("".join(linecache.getlines(file, frame.f_globals)))
            if lines is None or frame.f_lineno in lines:
                return True
        frame = frame.f_back
    return False


@functools.lru_cache(maxsize=64)
def _caught(source: str) -> frozenset[int] | None:
    """The lines of a file whose errors something in it may catch; None if it cannot be read."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    bodies = [one for node in ast.walk(tree) for one in _caught_by(node)]
    lines = frozenset(line for one in bodies for line in range(one.lineno, (one.end_lineno or 0) + 1))
    return lines if source else None


def _caught_by(node: ast.AST) -> list[ast.stmt]:
    """The statements whose errors this one may catch."""
    is_try = isinstance(node, ast.Try) and node.handlers
    suppresses = isinstance(node, ast.With) and any("suppress" in ast.unparse(item.context_expr) for item in node.items)
    return node.body if isinstance(node, (ast.Try, ast.With)) and (is_try or suppresses) else []
