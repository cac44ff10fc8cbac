"""One ATen call, as a tape writes it down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from traceback import FrameSummary
from typing import Any, ClassVar

import torch


class Refusal(RuntimeError):
    """A module cannot be captured, and its message says why.

    Attributes:
        made: those made since somebody began to note them (swallowed.py).
    """

    made: ClassVar[list[Refusal] | None] = None

    def __init__(self, *words: object) -> None:
        super().__init__(*words)
        if Refusal.made is not None:
            Refusal.made.append(self)


class AsksForData(Refusal):
    """Python asks for a value that depends on data.

    Attributes:
        question: the file and line of the question, if it is one whose answers lead to the end both ways.
    """

    question: tuple[str, int] | None = None


@dataclass(frozen=True)
class Register:
    """Stands for a tensor in a call's arguments."""

    number: int


class Number(Register):
    """Stands for a number in a call's arguments: the one in that tensor when the program runs."""


@dataclass
class Call:
    """One ATen call: arguments in the schema's order, with a Register for each tensor and `DEFAULT` for what was not
    given."""

    op: Any
    arguments: list[Any]
    results: list[int | None]
    """The registers of its results, flat; None for an undefined tensor."""
    written: list[int] = field(default_factory=list)
    """The registers that it writes to."""
    without_gradient: bool = False
    """Whether PyTorch made it under `torch.no_grad()`, as it makes all of backward: some of its kernels ask."""
    where: FrameSummary | None = field(default=None, compare=False)
    """The program's line, or, of backward, that of the call that is differentiated."""

    @property
    def name(self) -> str:
        return self.op.name()

    @property
    def operands(self) -> list[int]:
        return [register.number for register in registers(self.arguments)]


def draws(call: Call) -> bool:
    """Whether a call draws random numbers. The gradient of attention has PyTorch's tag for it too, and takes what
    forward drew."""
    if torch.Tag.nondeterministic_seeded not in call.op.tags or "backward" in call.op.name():
        return False
    given = {
        a.name: a.default_value if v is DEFAULT else v
        for a, v in zip(call.op._schema.arguments, call.arguments, strict=True)
    }
    return given.get("dropout_p") != 0 and given.get("training") is not False and given.get("train") is not False


class _Default:
    """The schema's default value."""


DEFAULT = _Default()


def registers(value: Any) -> Iterator[Register]:
    """The registers in a call's arguments."""
    if isinstance(value, Register):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from registers(item)


def results_of(op: Any, results: Any) -> Iterator[torch.Tensor | None]:
    """The tensors among a call's results; None for an undefined one, nothing for numbers."""
    return _flat(results if op._schema.returns else ())


def _flat(results: Any) -> Iterator[torch.Tensor | None]:
    if isinstance(results, (list, tuple)):
        for result in results:
            yield from _flat(result)
    elif results is None or isinstance(results, torch.Tensor):
        yield results


def in_line(frame: FrameSummary | None) -> str:
    """Where an error is, for its message."""
    if frame is None:
        return ""
    return f"\n\nIn file {frame.filename}:{frame.lineno}, in {frame.name}\n    {frame.line}"


def in_lines(error: Exception) -> str:
    """Where an error says that it is."""
    _, found, lines = str(error).partition("\n\nIn file ")
    return found + lines


def no_modes() -> Any:
    """A context in which PyTorch calls its kernels."""
    return torch.utils._python_dispatch._disable_current_modes()
