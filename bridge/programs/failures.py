"""Errors in which the runs of a function end, and which of them went wrong where both answers to a question end in one.

`if not mask.all(): raise ValueError(...)` raises for one answer. If the function ends in an error for the other one as
well, PyTorch raises that for the right data, and the check is not what went wrong.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from types import TracebackType

from bridge.primitive.graph_calls import add_lines
from bridge.programs.messages import statements

# A file, and a line of it.
Line = tuple[str, int]


@dataclass(frozen=True)
class Failure:
    """An error in which a run has ended, or the runs of both answers to a question.

    Args:
        error: the error.
        words: its class and what it says, but for numbers that stood for unknown ones.
        test: the lines of the test that decides about the statement which raises it; none if it is no such statement.
        is_either: whether it names the error of another answer, too.
    """

    error: Exception
    words: str
    test: frozenset[Line]
    is_either: bool = False

    @property
    def error_class(self) -> type[Exception]:
        """That of the error; RuntimeError where another answer may lead to another error."""
        return RuntimeError if self.is_either else type(self.error)

    @classmethod
    def of(cls, error: Exception, without_numbers: Callable[[str], str]) -> Failure:
        return cls(error, f"{type(error).__name__}: {without_numbers(str(error))}", _test(error))

    def or_other(self, other: Failure, lines: Collection[Line]) -> Failure:
        """What is said where one answer to a question leads to this error, and the other one to that.

        Args:
            lines: the one that asks, and those that have called it.
        """
        if self.words == other.words:
            return self
        is_check, is_other_check = self._is_check(lines), other._is_check(lines)
        if is_check != is_other_check:
            return other if is_check else self
        if self.is_either or other.is_either:
            return self
        words = f"\n\nFor other data: {other.words}"
        add_lines(self.error, words)
        return replace(self, words=self.words + words, is_either=True)

    def _is_check(self, lines: Collection[Line]) -> bool:
        """Whether it is raised because a question was answered so."""
        return not self.test.isdisjoint(lines)


def is_raised(error: Exception) -> bool:
    """Whether a `raise` or `assert` has raised it."""
    trace = _innermost(error)
    return trace is not None and trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _innermost(error: Exception) -> TracebackType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _test(error: Exception) -> frozenset[Line]:
    trace = _innermost(error)
    if trace is None or not is_raised(error):
        return frozenset()
    file = trace.tb_frame.f_code.co_filename
    tests = _tests("".join(linecache.getlines(file, trace.tb_frame.f_globals)))
    return frozenset((file, line) for line in tests.get(trace.tb_lineno, ()))


@functools.lru_cache(maxsize=64)
def _tests(source: str) -> dict[int, range]:
    """The lines of the tests of a file that decide about nothing but an error, by the lines of what raises it."""
    found: dict[int, range] = {}
    for node in statements(source):
        test = range(node.test.lineno, (node.test.end_lineno or 0) + 1)
        raising = [node] if isinstance(node, ast.Assert) else [*node.body[-1:], *node.orelse[-1:]]
        for statement in raising:
            if statement is node or _always_raises(statement):
                for line in range(statement.lineno, (statement.end_lineno or 0) + 1):
                    found.setdefault(line, test)
    return found


def _always_raises(statement: ast.stmt) -> bool:
    """As `assert False` does."""
    is_failing = isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Constant)
    return is_failing or isinstance(statement, ast.Raise)
