"""Makes a call through PyTorch and through the bridge, and says whether both refuse it or both answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import bridge
from bridge._mindspore import wait
from bridge.op.table import Fact, facts
from conformance import convert, reference
from conformance.calls import SEED, Call, seed_torch
from conformance.check import bridge_overload
from conformance.compare import compare, flatten
from conformance.dtypes import check_representable
from conformance.verdict import Mismatch, Skip

SAME, CLASS, WORDS = "the same", "another class", "other words"
ANSWERS, REFUSES = "the bridge answers", "the bridge refuses"
CRASHED, SKIPPED = "the bridge crashed", "skipped"
DIFFERENCES = {"dtype": "another dtype", "shape": "another shape", "value": "other values"}


@dataclass(frozen=True)
class Verdict:
    """How the bridge's outcome of one call compares with PyTorch's."""

    overload: str
    kind: str
    call: str
    detail: str = ""


def plain_class(error: Exception) -> type[Exception]:
    """The builtin class of an error; what PyTorch's schema parser refuses is a TypeError in its Python functions."""
    if re.search(r"Expected a value of type|is missing value for argument|Declaration: |positional arg", str(error)):
        return TypeError
    builtin = (c for c in type(error).__mro__ if c.__module__ == "builtins" and issubclass(c, Exception))
    return next(builtin, Exception)


def first_words(error: Exception) -> str:
    """An error's message without the backtrace, the name in front, and what MindSpore writes after it."""
    words, _, _ = str(error).partition("\nException raised from")
    words, _, _ = words.partition("\n\n----")
    return re.sub(r"^aten\.[\w.]+: ", "", words).strip()


Made = list[Any] | Exception  # what a call gives


def by_pytorch(run: Callable[[], Any]) -> Made:
    return _made(lambda: flatten(run()), seed_torch)


def by_bridge(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Made:
    def run() -> list[Any]:
        try:
            results = function(*map(convert.argument, args), **convert.keywords(kwargs))
        finally:
            wait()
        return convert.leaves(results)

    return _made(run, bridge.manual_seed)


def _made(run: Callable[[], list[Any]], seed: Callable[[int], Any]) -> Made:
    seed(SEED)
    try:
        return run()
    except (Mismatch, Skip):
        raise
    except Exception as error:
        return error


def verdict(call: Call, announce: Callable[[str], None]) -> Verdict:
    """Judge one call, and announce who makes it before it is made."""

    def found(kind: str, detail: str = "") -> Verdict:
        return Verdict(call.overload, kind, f"{call.source} in {call.key}"[:300], detail)

    def run() -> Any:
        args, kwargs = reference.copies(call)
        with torch.no_grad():
            return call.op(*args, **kwargs)

    try:
        line = reference.check_comparable(call, "cpu")
        announce("PyTorch")
        expected = by_pytorch(run)
        for result in expected if isinstance(expected, list) else []:
            check_representable(result)
        announce("bridge")
        actual = by_bridge(bridge_overload(call.overload), call.args, call.kwargs)
        return found(*_compare(call, expected, actual, reference.is_seeded(call, line)))
    except (Skip, Mismatch) as skip:
        return found(SKIPPED, str(skip))


def _compare(call: Call, expected: Made, actual: Made, random: bool) -> tuple[str, str]:
    if isinstance(expected, Exception):
        no_such_type = call.source.endswith((": None", "a string", "a number"))
        return compare_errors(TypeError(str(expected)) if no_such_type else expected, actual)
    if isinstance(actual, Exception):
        return REFUSES, f"{type(actual).__name__}: {first_words(actual)[:200]}"
    try:
        compare(expected, actual, values=not random and Fact.UNINITIALISED not in facts(call.overload))
    except Mismatch as mismatch:
        kind = next((kind for word, kind in DIFFERENCES.items() if word in str(mismatch)), "other results")
        return kind, str(mismatch)
    return SAME, ""


def compare_errors(expected: Exception, actual: Made) -> tuple[str, str]:
    """The kind and the detail of a verdict on a call that PyTorch refuses."""
    theirs = f"{type(expected).__name__}: {first_words(expected)[:200]}"
    if not isinstance(actual, Exception):
        return ANSWERS, theirs
    both = f"{type(actual).__name__}: {first_words(actual)[:200]} | instead of | {theirs}"
    if "allocate memory" in str(expected):
        return SKIPPED, "no memory"
    if plain_class(expected) is not plain_class(actual):
        return CLASS, both
    one, other = (first_words(error).splitlines()[:1] for error in (expected, actual))
    return (SAME, "") if plain_class(expected) is TypeError or one == other else (WORDS, both)
