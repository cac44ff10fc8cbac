"""Questions of PyTorch's distributions whether arguments are valid: `if not valid.all(): raise ValueError(...)`.

A graph takes them to be, and need not run the function to find out what comes of the other answer.
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
_DISTRIBUTIONS = f"{_TORCH}distributions/"
# Context managers that let errors pass.
_LETS_PASS = ("torch.", "record_function(")


def answer_without_error(frame: FrameType) -> tuple[bool, str] | None:
    """The answer to a question that this frame asks which leads to no error, and what the other one leads to; None if
    it is no such question, or something may catch the error."""
    if not frame.f_code.co_filename.startswith(_DISTRIBUTIONS):
        return None
    statement = asking(frame)
    if not isinstance(statement, ast.If) or len(statement.body) > 1 or not isinstance(statement.body[0], ast.Raise):
        return None
    raised = ast.unparse(statement.body[0])
    value, test = False, statement.test
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value, test = not value, test.operand
    if not raised.startswith("raise ValueError") or _is_caught(frame):
        return None
    return value, f"`{textwrap.shorten(raised, 160)}`"


def _is_caught(frame: FrameType | None) -> bool:
    """Whether the program may go on after an error in this frame."""
    while frame is not None and not frame.f_code.co_filename.startswith(_OWN):
        file = frame.f_code.co_filename
        if file.startswith(_DISTRIBUTIONS) or not file.startswith(_TORCH):  # its others hand on what they catch
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
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _may_catch(node)]
    lines = frozenset(line for node in nodes for line in range(node.lineno, (node.end_lineno or 0) + 1))
    return lines if source else None


def _may_catch(node: ast.stmt) -> bool:
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return not all(ast.unparse(item.context_expr).startswith(_LETS_PASS) for item in node.items)
    return type(node).__name__ in ("Try", "TryStar")  # which Python 3.10 does not have
