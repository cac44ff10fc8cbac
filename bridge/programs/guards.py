"""Questions of a program's Python that only data can answer: `if torch.any(x < 0): raise ValueError(...)`.

If one answer leads to an error, a graph takes the other, and checks it when it runs. If neither does, the graph would
compute something else for other data, and is refused: but where the question is whether numbers are finite, the graph
takes them to be, and checks it. On the way to an error the program may ask for numbers, as
`raise ValueError(f"{x.max().item()} is too large")` does: it is given NaN, as long as it then raises an error. For an
integer it is given one, until it is known that the run is not on that way: there it is a size (data_sizes.py).

If both answers lead to an error, the function raises the one that is no check of the answer (failures.py).

A question that decides about messages only is none (messages.py).
"""

from __future__ import annotations

import itertools
import linecache
import math
import pathlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from traceback import FrameSummary
from types import FrameType
from typing import Any

import torch

from bridge.primitive.launch_errors import text_of
from bridge.programs.calls import Call, Refusal, Register, in_line
from bridge.programs.distribution_checks import answer_without_error
from bridge.programs.failures import Failure, Line, is_raised
from bridge.programs.messages import is_for_messages

_TORCH = pathlib.Path(torch.__file__).parent
_OWN = pathlib.Path(__file__).parent


EQUAL = torch.ops.aten.equal.default
# PyTorch asks this to find a faster kernel. A mask works for what it is, so the answer may be False until it is True.
_CAUSAL = "_detect_is_causal_mask", "pass is_causal=True with a causal mask"
# What stands for an integer where it is not known yet whether the run is on the way to an error: the second, where the
# first leads to another error, as an index that is too large does.
_INTEGERS = 37, 0
# A run that asks more is a loop that goes on while data says so, as `trunc_normal_` does.
_MOST = 1000
# After so many questions of one line that were answered by True, the next one is by False: a loop ends then.
_LONG = 64
# A run that asks for more numbers is not on the way to an error.
_MOST_NUMBERS = 50
# After so many runs it is likely that they do not come to an end.
_MOST_RUNS = 300
# After so many questions of one line, called by the same lines, whose other answer led to an error, those to come are
# taken to be like them.
_ALIKE = 4


# Of a question that buffers answer, until the run has their answer.
_HELD = "other buffers"
# What an answer leads to whose both values lead to the end, where data says which.
_BOTH_WAYS = "the program goes on"
FOR_MESSAGES = "a graph says nothing when it runs"
_TOO_MANY = "more questions depend on data than a graph looks into: PyNative mode takes them as they come"
_NOT_FINITE = "a graph takes all numbers to be finite here, and PyNative mode takes others too"


@dataclass(frozen=True)
class Answer:
    """
    Args:
        value: None if the question is refused, or data says which.
        error: what the other value leads to; empty if that is not known yet, or the question is refused.
        after: the answers to the questions after it, where it has its other value.
        line: the program's that asks.
        callers: that line and those that have called it, as one number.
        of_finite: the value where numbers are finite; None if the question is another one.
        of_integers: whether the run that ended in the error was given integers, which may have led to it.
        lines: that line and those that have called it.
        failure: what the other value leads to, where a run has shown it.
        error_class: that of the error.
        given: the value that this run was given, where data says which and nothing has counted it.
        is_uncounted: whether data says which, nothing has counted it, and it is tried what its values lead to.
    """

    value: bool | None
    error: str = ""
    after: tuple[Answer, ...] = ()
    line: Line = "", 0
    callers: int = 0
    of_finite: bool | None = None
    of_integers: bool = False
    lines: frozenset[Line] = frozenset()
    failure: Failure | None = None
    error_class: type[Exception] = RuntimeError
    given: bool | None = None
    is_uncounted: bool = False

    @property
    def is_of_data(self) -> bool:
        return self.error == _BOTH_WAYS


class Guards:
    """The answers, over all runs that it takes to find them.

    Args:
        both_ways: the lines of the program of which questions are not refused that lead to the end both ways: data says
            which. None if none is.
        takes_held: whether what buffers hold is the answer, where they give one (held.py), and nothing else is tried.
        of_changed: whether, where they are not, data says which in these lines, also if buffers give an answer.

    Attributes:
        gave_sizes: whether the run was given sizes that nothing has counted.

    Raises:
        Refusal: it takes too many runs.
    """

    def __init__(self, both_ways: set[Line] | None = None, takes_held: bool = True, of_changed: bool = False) -> None:
        self.takes_held, self.of_changed = takes_held, of_changed
        self._both_ways = both_ways
        self._runs = 0
        self._errors: dict[int, list[Answer]] = {}  # answers whose other value led to an error, by their callers
        self._takes_alike, self._took_alike = True, False  # whether an answer may be, and was, taken to be like others
        self._answers: list[Answer] = []
        self._asked = self._numbers = 0
        self._gives_numbers = True
        self.gave_sizes = False
        self._gave_numbers = False
        self._gave_integers = False
        self._integer = 0  # the position of the one that is given
        self._mend: set[Line] = set()  # lines that go on where numbers are not finite
        self._of_data: set[int] = set()  # callers whose questions other data answers: a loop asks the same many times

    def begin(self) -> None:
        """The function runs from its beginning."""
        self._runs += 1
        if self._runs > _MOST_RUNS:
            line = self._answers[-1].line if self._answers else ("", 0)
            raise Refusal(_TOO_MANY + in_line(FrameSummary(*line, "forward", lookup_line=False)))
        self._asked = self._numbers = 0
        self._gave_numbers = self._gave_integers = self.gave_sizes = False

    def answer(self, of_finite: Callable[[], bool | None], held: Callable[[], bool | None]) -> Answer:
        """That of the next question.

        Args:
            of_finite: gives that of an Answer.
            held: gives the answer of buffers; None if they have none.
        """
        if self._asked == _MOST:
            self._answers[-1] = Answer(None)
            return self._answers[-1]
        if self._asked == len(self._answers):
            frame = _question()
            if is_for_messages(frame):
                self._answers.append(Answer(False, FOR_MESSAGES))
            elif (callers := _callers(frame)) in self._of_data:
                self._answers.append(self._first(frame, callers, None))
            elif self.takes_held and held() is not None:
                self._answers.append(Answer(None, _HELD))
            else:
                found = of_finite()
                if found is None:
                    self._of_data.add(callers)
                self._answers.append(self._first(frame, callers, found))
        self._asked += 1
        return self._answers[self._asked - 1]

    def settle(self, value: bool, error: str) -> Answer:
        """The answer to the last question, which was refused: it has this value in this run, and the other one leads to
        an error."""
        last = self._answers[self._asked - 1] = replace(self._answers[self._asked - 1], error=error)
        return replace(last, value=value)

    def note_given(self, value: bool) -> None:
        """Data answers the last question, and this run was given this value, which nothing has counted."""
        self._answers[self._asked - 1] = replace(self._answers[self._asked - 1], given=value)

    def try_both(self) -> bool:
        """Data answers the last question, and nothing has counted that, as where one value leads to an error.

        Returns: what is taken for the answer in this run.
        """
        self._answers[self._asked - 1] = replace(
            self._answers[self._asked - 1], value=True, error="", is_uncounted=True
        )
        return True

    def _first(self, frame: FrameType, callers: int, of_finite: bool | None) -> Answer:
        """What is taken for an answer to a new question."""
        is_causal, advice = _CAUSAL
        if frame.f_code.co_name == is_causal:
            return Answer(False, advice)
        line = frame.f_code.co_filename, frame.f_lineno
        if line in (self._both_ways or ()):
            return Answer(None, _BOTH_WAYS, line=line, callers=callers, lines=_lines(frame))
        if line in self._mend and of_finite is not None:
            return Answer(of_finite, _NOT_FINITE, line=line, of_finite=of_finite)
        without_error = answer_without_error(frame)
        if without_error is not None:
            value, error = without_error
            return Answer(value, error, line=line, callers=callers, of_finite=of_finite, error_class=ValueError)
        answer = Answer(True, line=line, callers=callers, of_finite=of_finite, lines=_lines(frame))
        answer = self._alike(answer)
        alike = sum(one.callers == callers and one.value is True and not one.error for one in self._answers)
        return answer if answer.error or alike < _LONG else replace(answer, value=False)

    def _alike(self, answer: Answer) -> Answer:
        """The answer, as those of its line, if they are many and all the same."""
        known = self._errors.get(answer.callers, [])
        values = {other.value for other in known}
        if answer.error or not self._takes_alike or len(known) < _ALIKE or values != {answer.value}:
            return answer
        self._took_alike = True
        error = f"as in another question of this line, {known[0].error}"
        return replace(answer, error=error, error_class=known[0].error_class)

    def is_settled(self) -> bool:
        """Whether the other value of each answer so far is known to lead to an error: this run is not on that way."""
        return all(answer.error for answer in self._answers[: self._asked])

    def question_of_integers(self) -> Line | None:
        """The line of the first question whose other value has led to an error that may be one of integers."""
        return next((answer.line for answer in self._answers if answer.of_integers), None)

    def may_be_any_size(self) -> bool:
        """Whether a size that nothing has counted may be any in this run, which may be on the way to an error."""
        if self.is_settled():
            return False
        self.gave_sizes = True
        return True

    def number(self, dtype: torch.dtype) -> float | None:
        """What stands for one that the run asks for; None where it is not on the way to an error."""
        if self.is_settled() or not self._gives_numbers:
            return None
        self._numbers += 1
        if self._numbers > _MOST_NUMBERS:
            self._gives_numbers = False
            return None
        if is_integer(dtype):
            self._gave_integers = True
            return _INTEGERS[self._integer]
        if dtype.is_floating_point:
            self._gave_numbers = True
            return math.nan
        return None

    def failed(self, error: Exception) -> Exception | None:
        """The run ended in an error. None if an answer is what led to it, and the other is to be tried; else the error
        that the function raises."""
        if (self._gave_numbers or self._gave_integers) and not (self._gives_numbers and is_raised(error)):
            if self._gave_integers and self._gives_numbers and self._integer + 1 < len(_INTEGERS):
                self._integer += 1
            else:
                self._gives_numbers = False  # the next run says where it asks
            return None
        del self._answers[self._asked :]
        failure = Failure.of(error, self._without_numbers)
        is_of_data = False
        while self._answers and self._answers[-1].error:  # both of its values lead to an error
            answer = self._answers.pop()
            if answer.failure is not None:
                failure = failure.or_other(answer.failure, answer.lines)
            # In this place it leads to an error, as at the end of a loop.
            if answer.given is not None and is_raised(error):
                self._answers.append(replace(answer, value=answer.given, error="", given=None))
                is_of_data = True
                break
        if not self._answers or self._answers[-1].value is None:
            if not self._took_alike:
                return failure.error
            self._took_alike, self._takes_alike = False, False
            self._answers.clear()
            return None
        last = self._answers.pop()
        found = replace(
            last,
            value=not last.value,
            error=failure.words,
            of_integers=self._gave_integers,
            failure=failure,
            error_class=failure.error_class,
        )
        self._errors.setdefault(last.callers, []).append(found)
        self._answers += [found, *last.after]
        self._gave_numbers = self._gave_integers = False
        self._integer = 0
        if last.value is False and not is_of_data:  # True is known to lead to the end
            self.succeeded()
        return None

    def _without_numbers(self, words: str) -> str:
        """The words of an error of this run, with ? for what stands for numbers."""
        words = re.sub(r"\bnan\b", "?", words) if self._gave_numbers else words
        return re.sub(rf"\b{_INTEGERS[self._integer]}\b", "?", words) if self._gave_integers else words

    def forget(self) -> None:
        """Leave the errors of runs, which hold these runs. No further one follows."""
        self._errors.clear()
        self._answers = [replace(answer, after=(), failure=None) for answer in self._answers]

    def succeeded(self) -> bool:
        """These answers lead to the end. Whether the other value of each is known to lead to an error; else one that is
        not is tried otherwise, or both of its values lead to the end."""
        if self._gave_numbers:
            self._gives_numbers = False
            return False
        self._answers = [self._alike(answer) for answer in self._answers]
        unknown = [i for i, answer in enumerate(self._answers) if not answer.error]
        if unknown:
            # Where one is False, True has led to the end before: it does not matter what those after it lead to.
            tried = next((i for i in unknown if self._answers[i].value is False), unknown[-1])
            last = self._answers[tried]
            after = self._answers[tried + 1 :]
            del self._answers[tried:]
            if last.value is False and last.of_finite is not None:
                self._mended(last, after)
            elif last.value is False and self._both_ways is not None and not last.is_uncounted:
                self._both_ways.add(last.line)
                self._answers = list(itertools.takewhile(lambda one: one.line != last.line, self._answers))
            else:
                self._answers.append(replace(last, value=False if last.value else None, after=tuple(after)))
        return not unknown

    def _mended(self, last: Answer, after: list[Answer]) -> None:
        """Both values of an answer lead to the end: take that for finite numbers, here and whenever this line asks.

        Args:
            after: the answers to the questions after it, where it is False.
        """
        self._mend.add(last.line)
        for i, answer in enumerate(self._answers):
            if answer.line == last.line and not answer.error and answer.of_finite is not None:
                self._answers[i] = replace(answer, value=answer.of_finite, error=_NOT_FINITE)
                if not answer.of_finite:  # it was True: others are asked after it
                    del self._answers[i + 1 :]
                    return
        self._answers.append(replace(last, value=last.of_finite, error=_NOT_FINITE))
        self._answers += last.after if last.of_finite else after


def is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def is_question(func: Any, tensor: torch.Tensor) -> bool:
    """Whether a call asks for a bool."""
    return func is EQUAL or (func is torch.ops.aten._local_scalar_dense.default and tensor.dtype is torch.bool)


def is_equal(a: int, b: int, each: int, register: int) -> list[Call]:
    """The calls whose result is a question's, which asks whether tensors of the same shape are equal.

    Args:
        a, b: their registers.
        each, register: registers that no call has made: of bools like them, and of one bool.
    """
    eq, every = torch.ops.aten.eq.Tensor, torch.ops.aten.all.default
    return [Call(eq, [Register(a), Register(b)], [each]), Call(every, [Register(each)], [register])]


def checks(answer: Answer, register: int, negated: int) -> list[Call]:
    """The calls that check an answer.

    Args:
        register: the tensor that is asked for.
        negated: a register that no call has made.
    """
    frame = _question()
    name, line = frame.f_code.co_filename, frame.f_lineno
    words = (
        f"`{linecache.getline(name, line).strip()}` ({name}:{line}) was taken to be {answer.value} when the graph was "
        f"compiled, and is {not answer.value} now: {answer.error}"
    )
    found = []
    if not answer.value:
        found.append(Call(torch.ops.aten.logical_not.default, [Register(register)], [negated]))
        register = negated
    message = text_of(answer.error_class, words)
    return [*found, Call(torch.ops.aten._assert_async.msg, [Register(register), message], [])]


def _question() -> FrameType:
    """The frame of the program that asks."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_inside(pathlib.Path(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def _callers(frame: FrameType | None) -> int:
    lines = []
    while frame is not None:
        lines.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return hash(tuple(lines))


def _lines(frame: FrameType | None) -> frozenset[Line]:
    """The line of a frame, and those that have called it."""
    lines = set()
    while frame is not None:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return frozenset(lines)


def _is_inside(path: pathlib.Path) -> bool:
    """Whether a file is about how PyTorch calls a tape, and not a program's."""
    if path.is_relative_to(_OWN):
        return True
    return path.is_relative_to(_TORCH) and path.relative_to(_TORCH).parts[0].startswith("_")
