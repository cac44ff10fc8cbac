"""Sizes that data decides and that have to be certain ones: `torch.arange(int(lengths.max())) < lengths[:, None]` masks
padding, and fits only if there are as many steps as in what it masks.

What fits is found by trial: what the buffers at hand give, else one of the sizes at hand. The program checks it when it
runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from bridge.primitive.graph_calls import add_lines
from bridge.programs.calls import DEFAULT, Call, Refusal
from bridge.programs.capture import Captured
from bridge.programs.data_sizes import STAND_INS_OF_SIZES, Place, Sizes, TooManySizes, UnknownSize
from bridge.programs.size_numbers import SizeNumber

# So many of PyTorch's calls are made without data to find what fits: that takes some ten seconds.
MOST = 20_000
# So many sizes are tried where a guess is made anew.
_LIKELIEST = 3
# What an error says that stand-ins for sizes may have led to.
_NUMBER = re.compile(r"\b\d")
_OTHERS = (
    "\n\nFor the graph, sizes that depend on data were taken to be others than the data's, which may be why: PyNative "
    "mode knows them"
)


def add_others(error: Exception) -> None:
    """Have an error say that, unless it says no number, and so nothing of a size."""
    if says_number(error):
        add_lines(error, _OTHERS)


def says_number(error: Exception) -> bool:
    """Whether there is one in its words; that of int32 is none."""
    return _NUMBER.search(str(error).partition("\n\nIn file ")[0]) is not None


def fitting(
    captured_with: Callable[[Sizes], Captured],
    sizes: Callable[[int], Sizes],
    among: Collection[SizeNumber] | None = None,
    most: int = MOST,
) -> tuple[Captured, dict[SizeNumber, int]]:
    """The run of a function with sizes that fit, and these sizes, by their numbers.

    Args:
        captured_with: captures the function.
        sizes: gives those that it is told, with a stand-in for the others.
        among: the numbers of those that may be guessed; None for all that it is not told.
        most: after so many of PyTorch's calls nothing more is tried.

    Raises:
        UnknownSize: it asks for a size that is none of these.
        Exception: what the function raises, if nothing fits.
    """
    errors: list[Exception] = []
    try:
        for stand_in, _ in STAND_INS_OF_SIZES:
            told = sizes(stand_in)
            if among is None and stand_in in told.known.values():
                continue  # it would fit where that size does
            search = _Search(captured_with, told, among, most)
            try:
                return search.run()
            except (UnknownSize, TooManySizes):
                raise
            except Exception as error:
                errors.append(error)
            most = search.left
        if not isinstance(errors[0], Refusal):
            add_others(errors[0])
        raise errors[0]
    finally:
        errors.clear()  # this frame, which they hold, would keep them


class _Search:
    """One with one stand-in: size by size, as each makes the function go on to more of PyTorch's calls.

    Attributes:
        left: how many calls may still be made.
    """

    def __init__(
        self,
        captured_with: Callable[[Sizes], Captured],
        told: Sizes,
        among: Collection[SizeNumber] | None,
        most: int,
    ) -> None:
        self._captured_with = captured_with
        self._told = told
        self._among = among
        self.left = most

    def run(self) -> tuple[Captured, dict[SizeNumber, int]]:
        guesses: dict[SizeNumber, int] = {}
        while True:
            tape, found = self._capture(guesses)
            if isinstance(found, UnknownSize):
                raise found
            if isinstance(found, Captured) and not found.no_gradient:
                return found, guesses
            more = self._held(guesses, tape) or self._better(guesses, tape) or self._anew(guesses, tape)
            if more is None:
                if isinstance(found, Captured):
                    return found, guesses
                raise found
            guesses = more

    def _capture(self, guesses: dict[SizeNumber, int]) -> tuple[Any, Captured | Exception]:
        """The tape of a run with these guesses, and what came of it."""
        tapes: list[Any] = []
        guessed = self._told.guessed | guesses.keys()
        try:
            found = self._captured_with(
                replace(self._told, known={**self._told.known, **guesses}, guessed=guessed, tapes=tapes)
            )
            return tapes[-1], found
        except Exception as error:
            return tapes[-1], error
        finally:
            self.left -= sum(tape.asked for tape in tapes)

    def _held(self, guesses: dict[SizeNumber, int], failed: Any) -> dict[SizeNumber, int] | None:
        """These guesses and what buffers give for further sizes, with which the function makes as many calls as in the
        run that failed, or more; None if buffers give none."""
        places = failed.data_sizes.places.items()
        present = {
            number: failed.held.size(place)
            for number, place in places
            if number not in guesses and not number.is_answer and self._may_guess(number)
        }
        more = {**guesses, **{number: size for number, size in present.items() if size is not None}}
        if len(more) == len(guesses):
            return None
        tape, _ = self._capture(more)
        return more if tape.asked >= failed.asked else None

    def _better(self, guesses: dict[SizeNumber, int], failed: Any) -> dict[SizeNumber, int] | None:
        """These guesses and another one, with which the function makes more calls than in the run that failed; None if
        there is none."""
        for number in reversed([*failed.data_sizes.places]):
            if number in guesses or number.is_answer or not self._may_guess(number):
                continue
            better = self._with(number, _candidates(failed, number, guesses.values()), guesses, failed)
            if better is not None:
                return better[0]
        return None

    def _with(
        self, number: SizeNumber, candidates: Sequence[int], guesses: dict[SizeNumber, int], failed: Any
    ) -> tuple[dict[SizeNumber, int], Any, Captured | Exception] | None:
        """These guesses with the first of the candidates for a size that is better, and what came of it."""
        for size in candidates:
            if self.left < 0:
                return None
            more = {**guesses, number: size}
            tape, found = self._capture(more)
            if _is_better(tape, found, failed):
                return more, tape, found
        return None

    def _anew(self, guesses: dict[SizeNumber, int], failed: Any) -> dict[SizeNumber, int] | None:
        """The same with guesses made anew that come after that size: those before fitted what it was taken to be."""
        for number in failed.data_sizes.places:
            later = sorted(guess for guess in guesses if guess > number)
            if number in guesses or number.is_answer or not later or not self._may_guess(number):
                continue
            for size in _candidates(failed, number, ()):
                if self.left < 0:
                    return None
                more = {guess: known for guess, known in guesses.items() if guess < number} | {number: size}
                tape, found = self._capture(more)
                for guess in later:
                    if guess not in tape.data_sizes.places:
                        break
                    likeliest = _candidates(tape, guess, more.values())[:_LIKELIEST]
                    more, tape, found = self._with(guess, likeliest, more, tape) or (more, tape, found)
                if _is_better(tape, found, failed):
                    return more
        return None

    def _may_guess(self, number: SizeNumber) -> bool:
        return number not in self._told.known if self._among is None else number in self._among


def _is_better(tape: Any, found: Captured | Exception, failed: Any) -> bool:
    """Whether a run has made more calls than the one that failed, or has come to its end."""
    return tape.asked > failed.asked or (isinstance(found, Captured) and not found.no_gradient)


def _candidates(tape: Any, number: SizeNumber, guesses: Iterable[int]) -> list[int]:
    """What a size may have to be: the likeliest ones first."""
    place = tape.data_sizes.places[number]
    present = tape.held.size(place)
    found = [] if present is None else [present]
    found += guesses
    found += _least(tape, place)
    sizes = [size for tensor in reversed(tape.tensors) for size in tensor.shape if size > 1]
    found += sizes  # others fit without being meant
    if number.is_integer:  # the largest of the numbers from 0 on that so many groups have
        found += (size - 1 for size in sizes)
    return list(dict.fromkeys(found))


def has_least(call: Call) -> bool:
    """Whether it is torch.bincount, told how many numbers it gives at least."""
    return call.op is torch.ops.aten.bincount.default and call.arguments[2] not in (0, DEFAULT)


def _least(tape: Any, place: Place) -> Iterator[int]:
    """How many numbers torch.bincount gives there at least, if somebody has said that: often there are no more."""
    for call in tape.calls:
        if has_least(call) and place.register in call.results:
            yield from (least for least in call.arguments[2:] if isinstance(least, int) and least > 1)
