"""Questions that decide about messages only: `if x.min() < -1: print("the minimum is", x.min())`.

Nothing follows from them, so a graph does not ask: it leaves the message out.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import linecache
import logging
import warnings
from types import CodeType, FrameType
from typing import Any

import torch

# What has no effect, of tensors, of torch and of strings. No name ends with an underscore, and nothing draws.
_METHODS = {
    "abs", "all", "amax", "amin", "any", "cpu", "detach", "dim", "eq", "float", "format", "ge", "gt", "isfinite",
    "isinf", "isnan", "item", "join", "le", "lt", "max", "mean", "median", "min", "ne", "norm", "numel", "numpy",
    "size", "std", "sum", "tolist", "var",
}  # fmt: skip
_FUNCTIONS = (abs, bool, float, int, len, list, max, min, repr, round, str, sum, tuple, type)
_PLAIN = (
    ast.BinOp, ast.BoolOp, ast.Compare, ast.Constant, ast.Dict, ast.FormattedValue, ast.IfExp, ast.JoinedStr, ast.List,
    ast.Slice, ast.Starred, ast.Tuple, ast.UnaryOp,
)  # fmt: skip
_ABSENT = object()


def is_for_messages(frame: FrameType) -> bool:
    """Whether the line that asks is the test of an `if` that says something, and does nothing else."""
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    statement = _ifs(source).get(frame.f_lineno)
    return statement is not None and frame.f_code in _codes(source) and _Names(frame).says(statement)


@functools.lru_cache(maxsize=64)
def _ifs(source: str) -> dict[int, ast.If]:
    """The `if`s of a file, by the lines of their tests."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    return {line: node for node in found for line in range(node.test.lineno, (node.test.end_lineno or 0) + 1)}


@functools.lru_cache(maxsize=64)
def _codes(source: str) -> set[CodeType]:
    """The code of a file. Where that has changed since it was imported, it is another one than runs."""
    found: set[CodeType] = set()
    left = [compile(source, "", "exec", dont_inherit=True)]
    while left:
        code = left.pop()
        found.add(code)
        left += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


class _Names:
    """What the names of a running function stand for."""

    def __init__(self, frame: FrameType) -> None:
        self._spaces = frame.f_locals, frame.f_globals, vars(builtins)

    def says(self, statement: ast.stmt) -> bool:
        """Whether a statement says something and does nothing else."""
        if isinstance(statement, ast.Pass):
            return True
        if isinstance(statement, ast.If):
            return self.have_no_effect(statement.test) and all(map(self.says, (*statement.body, *statement.orelse)))
        if not isinstance(statement, ast.Expr):
            return False
        call = statement.value
        if not isinstance(call, ast.Call):
            return isinstance(call, ast.Constant)
        function = self._value(call.func)
        is_message = function is print or function is warnings.warn or self._logs(call.func)
        return is_message and self._take_no_effect(call)

    def _logs(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
            return self._value(function.value.func) is logging.getLogger
        value = self._value(function)
        if getattr(value, "__module__", None) == logging.__name__:
            return True
        return isinstance(getattr(value, "__self__", None), (logging.Logger, logging.LoggerAdapter))

    def have_no_effect(self, *expressions: ast.expr) -> bool:
        """Whether nothing else follows from computing these."""
        return all(map(self._has_no_effect, expressions))

    def _has_no_effect(self, expression: ast.expr) -> bool:
        if isinstance(expression, ast.Name):
            return True
        if isinstance(expression, (ast.Attribute, ast.Subscript)):
            return self._value(expression) is not _ABSENT or self.have_no_effect(expression.value)
        if isinstance(expression, ast.Call):
            return self._asks(expression.func) and self._take_no_effect(expression)
        children = [child for child in ast.iter_child_nodes(expression) if isinstance(child, ast.expr)]
        return isinstance(expression, _PLAIN) and self.have_no_effect(*children)

    def _take_no_effect(self, call: ast.Call) -> bool:
        return self.have_no_effect(*call.args, *(keyword.value for keyword in call.keywords))

    def _asks(self, function: ast.expr) -> bool:
        """Whether a function is one of those that have no effect."""
        if not isinstance(function, ast.Attribute):
            return any(self._value(function) is known for known in _FUNCTIONS)
        if function.attr not in _METHODS:
            return False
        owner = function.value
        value = self._value(owner)
        if value is not _ABSENT:
            return value is torch or isinstance(value, (torch.Tensor, str))
        if isinstance(owner, ast.Subscript):
            return isinstance(self._value(owner.value), torch.Tensor)
        return not isinstance(owner, (ast.Name, ast.Attribute)) and self._has_no_effect(owner)

    def _value(self, expression: ast.expr) -> Any:
        """What a name, also one with dots, stands for; _ABSENT for other expressions."""
        if isinstance(expression, ast.Name):
            return next((space[expression.id] for space in self._spaces if expression.id in space), _ABSENT)
        if isinstance(expression, ast.Attribute):
            owner = self._value(expression.value)
            with contextlib.suppress(Exception):  # of a property
                return _ABSENT if owner is _ABSENT else getattr(owner, expression.attr, _ABSENT)
        return _ABSENT
