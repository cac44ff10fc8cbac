"""Questions that decide about messages only: `if torch.min(x) < -1: print("the minimum is", torch.min(x))`.

Nothing follows from them, so a graph does not ask: it leaves the message out. What might do something else, as a
property or a method of the user's, is not taken for a message.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import linecache
import logging
from types import CodeType, FrameType
from typing import Any

import torch

# Of a tensor of any size, they give one, and change nothing.
_NUMBERS = {"amax", "amin", "max", "mean", "min", "sum"}
_TENSORS = {"isfinite", "isinf", "isnan", "abs", "detach", "float", "cpu"}
_ATTRIBUTES = {"device", "dtype", "shape"}
_PRINTED = (torch.Tensor, int, float, bool, str, type(None), torch.Size, torch.dtype, torch.device)
_LOGGERS = (logging.Logger, type(logging.root))
_LEVELS = {"critical", "debug", "error", "info", "warning"}
# In the test of an `if`, what the answer may decide about besides the branch.
_DECIDES = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def is_for_messages(frame: FrameType) -> bool:
    """Whether it is an `if` that asks, for its test, and that says something and does nothing else."""
    statement = asking(frame)
    return isinstance(statement, ast.If) and all(map(_Names(frame).says, (*statement.body, *statement.orelse)))


def asking(frame: FrameType) -> ast.If | ast.Assert | None:
    """The statement that asks, for its test, if it is one whose test is computed as a whole whatever the answer is."""
    if not dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("POP_JUMP"):
        return None
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    statement = _statements(source).get(frame.f_lineno)
    return statement if frame.f_code in _codes(source) else None


@functools.lru_cache(maxsize=64)
def statements(source: str) -> list[ast.If | ast.Assert]:
    """Those of a file that test something; outer ones first."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, (ast.If, ast.Assert))]


@functools.lru_cache(maxsize=64)
def _statements(source: str) -> dict[int, ast.If | ast.Assert]:
    """Those whose test is computed as a whole, by its lines."""
    found = [node for node in statements(source) if not any(map(_decides, ast.walk(node.test)))]
    return {line: node for node in found for line in range(node.test.lineno, (node.test.end_lineno or 0) + 1)}


def _decides(node: ast.AST) -> bool:
    return isinstance(node, _DECIDES) or (isinstance(node, ast.Compare) and len(node.ops) > 1)


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
        """Whether a statement says something, if anything, and does nothing else."""
        if not isinstance(statement, ast.Expr):
            return isinstance(statement, ast.Pass)
        call = statement.value
        if not isinstance(call, ast.Call):
            return isinstance(call, ast.Constant)
        is_print = isinstance(call.func, ast.Name) and self._value(call.func) is print
        named = [
            (word.arg in {"end", "flush", "sep"}) and isinstance(word.value, ast.Constant) for word in call.keywords
        ]
        return (is_print or self._logs(call.func)) and all(named) and all(map(self._is_plain, call.args))

    def _logs(self, function: ast.expr) -> bool:
        if not isinstance(function, ast.Attribute) or function.attr not in _LEVELS:
            return False
        owner = self._value(function.value)
        return owner is logging or type(owner) in _LOGGERS

    def _is_plain(self, given: ast.expr) -> bool:
        """Whether nothing follows from computing this, and from writing it as text."""
        if isinstance(given, ast.JoinedStr):
            return all(map(self._is_plain, given.values))
        if isinstance(given, ast.FormattedValue):
            is_number = given.format_spec is None or self._is_number(given.value)
            return is_number and self._is_plain(given.value)
        value = self._value(given)
        if isinstance(given, ast.Name) or value is not None:
            return type(value) in _PRINTED or isinstance(value, torch.Tensor)
        if isinstance(given, ast.Attribute):
            return given.attr in _ATTRIBUTES and isinstance(self._value(given.value), torch.Tensor)
        return isinstance(given, ast.Constant) or self._is_tensor(given) or self._is_number(given)

    def _is_number(self, given: ast.expr) -> bool:
        """Whether this is the number in a tensor that has one, or another number."""
        if isinstance(given, ast.Call) and not given.keywords:
            if isinstance(given.func, ast.Attribute) and given.func.attr == "item" and not given.args:
                return self._has_one(given.func.value)
            return self._value(given.func) is float and len(given.args) == 1 and self._has_one(given.args[0])
        return type(self._value(given)) in (int, float)

    def _has_one(self, given: ast.expr) -> bool:
        """Whether this is a tensor of one element."""
        value = self._value(given)
        if isinstance(value, torch.Tensor):
            return value.numel() == 1
        asked = self._asked(given, _NUMBERS | _TENSORS)
        return asked is not None and (self._asked(given, _NUMBERS) is not None or self._has_one(asked))

    def _is_tensor(self, given: ast.expr) -> bool:
        """Whether this asks a tensor, by one of the methods or functions that change nothing."""
        return self._asked(given, _NUMBERS | _TENSORS) is not None

    def _asked(self, given: ast.expr, methods: set[str]) -> ast.expr | None:
        """The tensor that this asks by one of these methods or functions; None if it does something else."""
        if not isinstance(given, ast.Call) or not isinstance(given.func, ast.Attribute) or given.keywords:
            return None
        owner, arguments = given.func.value, given.args
        if self._value(owner) is torch and len(arguments) == 1:
            owner, arguments = arguments[0], []
        is_tensor = isinstance(self._value(owner), torch.Tensor) or self._is_tensor(owner)
        return owner if given.func.attr in methods and not arguments and is_tensor else None

    def _value(self, expression: ast.expr) -> Any:
        """What a name stands for, a module's own attribute, or an item of a dictionary; None for other expressions."""
        if isinstance(expression, ast.Name):
            return next((space[expression.id] for space in self._spaces if expression.id in space), None)
        if isinstance(expression, ast.Subscript) and isinstance(expression.slice, ast.Constant):
            owner = self._value(expression.value)
            return owner.get(expression.slice.value) if type(owner) is dict else None
        if isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            owner = self._value(expression.value)
            if isinstance(owner, torch.nn.Module) and not hasattr(type(owner), expression.attr):
                return vars(owner).get(expression.attr)
        return None
