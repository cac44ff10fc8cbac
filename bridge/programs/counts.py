"""The program that counts: it makes the calls of a function that decide sizes (data_sizes.py), and gives the sizes."""

from __future__ import annotations

import bisect
import contextlib
import copy
import functools
import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from bridge.programs.calls import DEFAULT, AsksForData, Call, Refusal, Register, in_line
from bridge.programs.capture import Captured
from bridge.programs.data_sizes import ALL_ANSWERS, STAND_INS_OF_SIZES, Apart, Place, Sizes, TooManySizes, apart
from bridge.programs.drawn_before import given_back, with_draws
from bridge.programs.fits import MOST, add_others, fitting, has_least, says_number
from bridge.programs.held import Changes
from bridge.programs.listing import Listing, new_register
from bridge.programs.looks import LARGE
from bridge.programs.memory import storage_of
from bridge.programs.size_numbers import SizeNumber
from bridge.programs.split import split
from bridge.programs.tape import Tape
from bridge.programs.text import text

# The shape of what carries a size that is not known: so many rows, without elements.
CARRIER = (-1, 0)
# So many of PyTorch's calls are made to find sizes that fit, where the error is the same whatever they are.
_FEW = 2_000
# So many pairs of sizes show that how many there are follows from one of them. A loop of further ones takes longer.
_UNEVEN = 2
# Of so many integers it is looked at what follows from a 0.
_MOST_ZEROS = 3

_NEGATIVE = "a number that depends on data is negative here, and a graph takes it for a size: PyNative mode knows it"
_REFUSAL = "a size depends on data, and follows from {}, which a graph does not know: PyNative mode does"

_NESTED = (
    "an answer that depends on data decides which further ones there are, and how many, which a graph does not follow: "
    "PyNative mode does"
)


class Nested(Refusal):
    """A size is met after one answer, and after another one a number of others comes before it."""


class Uneven(Refusal):
    """How many sizes there are follows from one of them: `torch.bincount(x).tolist()`.

    Args:
        is_of_least: whether the run has called torch.bincount with a `minlength`.
    """

    def __init__(self, message: str, is_of_least: bool) -> None:
        super().__init__(message)
        self.is_of_least = is_of_least


class _OtherAnswer(Exception):
    """The function raises an error where an answer is the other one. It may be the other sizes that lead to that."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class NoSize(AsksForData):
    """Where the sizes are others than the data's, none of them is met: the function asks for something else before, the
    question if that is known."""


@dataclass
class Count:
    """The program.

    Attributes:
        run: what it is a part of.
        numbers: those of the sizes that it gives; or, if it makes no calls, of those that have to fit (fits.py).
        listing: the program.
        positions: those of its inputs among the run's.
        asks_otherwise: whether another answer has led to sizes that are not among all those of the run, or that have
            the number of another one.
    """

    run: Captured
    numbers: list[SizeNumber]
    listing: Listing
    positions: list[int]
    asks_otherwise: bool = False


def count(
    captured_with: Callable[[Sizes], Captured],
    told: Sizes,
    needed: Collection[int],
    guessed: Collection[SizeNumber],
    wanted: Sequence[SizeNumber] | None,
    pairs: Iterable[tuple[int, int]],
    is_quick: bool,
) -> Count:
    """The program that gives sizes which follow from no size but the known; or, where further sizes have to fit, their
    numbers with a program without calls.

    Args:
        captured_with: captures the function.
        told: the sizes that the program is told.
        needed: the positions of inputs that it takes in any case.
        guessed: the numbers of those sizes of which it is known that they have to fit.
        wanted: the numbers of the sizes that the program has to give, as it does for other known sizes. Those that are
            not met are 0. None for all that it can give.
        pairs: what the other sizes are taken to be in two runs, one pair after the other.
        is_quick: whether it is not looked at what other answers lead to, if all wanted sizes are met.

    Raises:
        NoSize: see there.
        Refusal: there is no such size.
        Exception: what the function raises, whatever the other sizes are taken to be.
    """

    def sizes(others: int, false: frozenset[SizeNumber] = frozenset(), end: SizeNumber | None = None) -> Sizes:
        known = {**told.known, **dict.fromkeys(guessed, others), **guesses}
        is_large = others == LARGE
        return replace(
            told, known=known, others=others, false=false, guessed=frozenset(guesses), end=end, finds_looks=is_large
        )

    guesses: dict[SizeNumber, int] = {}
    if guessed:
        _, guesses = fitting(captured_with, sizes, guessed)
    errors: list[Exception] = []
    of_answers: list[tuple[int, int]] = []  # where another answer leads to an error, and that one does not
    counted: Count | None = None
    try:
        for pair in pairs:
            if pair not in STAND_INS_OF_SIZES and any(isinstance(error, Refusal) for error in errors):
                break  # multiples of a size would hide what others have shown
            if sum(isinstance(error, Uneven) for error in errors) == _UNEVEN:
                break
            try:
                known = {**told.known, **guesses}
                captured_for = functools.cache(lambda *others: captured_with(sizes(*others)))
                counted = _count(captured_for, pair, known, needed, wanted, is_quick)
                break
            except (AsksForData, TooManySizes) as error:
                if not isinstance(error, NoSize) or error.question is not None:
                    raise
                errors.append(error)
            except _OtherAnswer as other:
                errors.append(other.error)
                of_answers.append(pair)
            except Exception as error:
                errors.append(error)
        if counted is None and of_answers:
            with contextlib.suppress(Exception):
                known = {**told.known, **guesses}
                captured_for = functools.cache(lambda *others: captured_with(sizes(*others)))
                counted = _count(captured_for, of_answers[0], known, needed, wanted, is_quick, takes_errors=True)
        if counted is None and not any(isinstance(error, Refusal) for error in errors):
            known = {**told.known, **guesses}
            counted = _of_integers_apart(captured_with, sizes, known, needed, wanted, is_quick)
        if counted is not None and not counted.run.no_gradient:
            return counted
        if wanted is None and (counted is not None or not isinstance(errors[0], Refusal)):
            is_of_sizes = len({str(error) for error in errors}) > 1
            if counted is None and told.known and is_of_sizes:  # the others may have to be like those
                with contextlib.suppress(Exception):
                    captured_for = functools.cache(_to_the_last_size(captured_with, sizes))
                    return _count(captured_for, _unlike(told), {**told.known, **guesses}, needed, None, is_quick)
            try:
                run, found = fitting(captured_with, sizes, None, MOST if is_of_sizes else _FEW)
                if found and (counted is None or not run.no_gradient):
                    return Count(run, [*found], Listing(run.tape, [], [], []), [])
            except Changes:  # with sizes that fit it comes to such a question
                raise
            except Exception as error:  # it may have nothing to do with sizes, and come after what needs them
                if not isinstance(error, Refusal) and not says_number(error):
                    errors.insert(0, error)
        if counted is not None:
            return counted
        if not isinstance(errors[0], Refusal):
            add_others(errors[0])
        raise errors[0]
    finally:
        errors.clear()  # this frame, which they hold, would keep them


def _of_integers_apart(
    captured_with: Callable[[Sizes], Captured],
    sizes: Callable[..., Sizes],
    known: Collection[SizeNumber],
    needed: Collection[int],
    wanted: Sequence[SizeNumber] | None,
    is_quick: bool,
) -> Count | None:
    """The program, for a function that needs something between two integers: `conv(x[:, :, begin:end])`. None if it is
    none of these."""
    pair, tapes = STAND_INS_OF_SIZES[0], list[Any]()
    with contextlib.suppress(Exception):
        captured_with(replace(sizes(pair[0]), tapes=tapes))
    met = tapes[-1].data_sizes.places  # before the error
    for both in apart(sum(number.is_integer and number not in known for number in met)):
        integers = dict(zip(pair, both, strict=True))

        def captured_for(others: int, *more: Any, integers: dict[int, Apart] = integers) -> Captured:
            return captured_with(replace(sizes(others, *more), apart=integers.get(others)))

        try:
            return _count(functools.cache(captured_for), pair, known, needed, wanted, is_quick)
        except (AsksForData, TooManySizes) as error:
            if not isinstance(error, NoSize):
                raise
        except Exception:  # it may need other ones
            continue
    return None


def _unlike(told: Sizes) -> tuple[int, int]:
    """What the other sizes are taken to be in two runs: none of those that are told."""
    return next(pair for pair in STAND_INS_OF_SIZES if {*told.known.values()}.isdisjoint(pair))


CapturedFor = Callable[[int, frozenset[SizeNumber], SizeNumber | None], Captured]
"""Captures the function. The arguments are what the other sizes are taken to be, the numbers of answers that are False,
and the number of the size at which the run ends."""


def _to_the_last_size(captured_with: Callable[[Sizes], Captured], sizes: Callable[..., Sizes]) -> CapturedFor:
    """The same for a function that does not run to its end with such sizes: to the last size before the error."""

    def captured_for(others: int, false: frozenset[SizeNumber], end: SizeNumber | None) -> Captured:
        tapes: list[Any] = []
        told = sizes(others, false, end)
        try:
            return captured_with(replace(told, tapes=tapes))
        except Refusal:
            raise
        except Exception:
            last = max(tapes[-1].data_sizes.places, default=None)
            if end is not None or last is None or last in told.known:
                raise
            return captured_with(replace(told, end=last))

    return captured_for


def _count(
    captured_for: CapturedFor,
    pair: Sequence[int],
    known: Collection[SizeNumber],
    needed: Collection[int],
    wanted: Sequence[SizeNumber] | None,
    is_quick: bool,
    takes_errors: bool = False,
) -> Count:
    """That program, out of two runs in which the other sizes are unlike, if there are others than answers."""
    chained = _chained(captured_for, pair, known, needed, wanted)
    if chained is not None:
        return chained
    false, flipped = _answers(captured_for, pair[0], known, wanted, is_quick, takes_errors)
    run = captured_for(pair[0], false, _last(wanted))
    end = _last(wanted) if wanted else _first_after(run, known)

    def of(is_taken: Callable[[SizeNumber], bool]) -> list[Count]:
        runs = [run]
        if not all(number in known or number.is_answer for number in runs[0].tape.data_sizes.places):
            runs.append(captured_for(pair[1], false, end))
        places = [_until(run, end) for run in runs]
        if len(set(map(tuple, places))) > 1:
            both = (places[0], places[-1]), (places[-1], places[0])
            line = next(one[number].line for one, other in both for number in one if number not in other)
            what = f"how many sizes depend on data follows from a size{_REFUSAL.partition('{}')[2]}"
            raise Uneven(what + in_line(line), any(has_least(call) for call in run.tape.calls))
        first, last = _independent(runs[0], known), _independent(runs[-1], known)
        numbers = [number for number in first if number in last and is_taken(number)]
        return [_program(run, numbers, needed) for run in runs]

    found = of(lambda number: wanted is None or number in wanted)
    if not _are_equal(found):  # what Python computes with a size is in the program of another one
        fixed = {number for number in found[0].numbers if _are_equal(of(functools.partial(operator.eq, number)))}
        found = of(fixed.__contains__)
    others = [*flipped, *(() if is_quick else _with_zeros(captured_for, pair[0], false, run, known, end))]
    asks_otherwise = False
    if others:
        fixed = _fixed(found[0], others)
        asks_otherwise = len(fixed) < len(found[0].numbers) or any(
            other.tape.data_sizes.places.keys() - run.tape.data_sizes.places.keys() for other in others
        )
        found = of(fixed.__contains__)
    if wanted is not None:
        given = found[0].numbers if _are_equal(found) else []
        met = found[0].run.tape.data_sizes.places
        for number in wanted:
            if number in met and number not in given:
                raise Nested(_NESTED + in_line(met[number].line))
        return _program(found[0].run, wanted, needed, given)
    if not found[0].numbers or not _are_equal(found):
        sizes = found[0].run.tape.data_sizes.places
        last = sizes[max(sizes)].line if sizes else None
        if len(sizes) == len(known):
            no_size = NoSize(_REFUSAL.format("another one") + in_line(last))
            no_size.question = run.tape.guards.question_of_integers()
            raise no_size
        line = next((place.line for number, place in sizes.items() if number not in known), last)
        raise Refusal(_REFUSAL.format("another one") + in_line(line))
    return replace(found[0], asks_otherwise=asks_otherwise)


def _chained(
    captured_for: CapturedFor,
    pair: Sequence[int],
    known: Collection[SizeNumber],
    needed: Collection[int],
    wanted: Sequence[SizeNumber] | None,
) -> Count | None:
    """The program, if the calls that give sizes are the same whatever these are, although one follows from another one,
    as in a loop of `x[mask] = step(x[mask])`. None if there are answers first, more calls for larger sizes, or code of
    the function's own that looks at them."""
    first, second = pair
    try:
        run = captured_for(first, frozenset(), _last(wanted))
    except Refusal:
        raise
    except Exception:  # which other answers may not lead to
        return None
    new = (number for number in run.tape.data_sizes.places if number not in known)
    chain = [*itertools.takewhile(lambda number: not number.is_answer and not number.is_integer, new)]
    alone = {*_independent(run, known)}
    while not alone.issuperset(chain):
        alike = _whatever_sizes(captured_for, second, run, chain)
        if alike == chain:
            break
        chain = alike
    else:
        return None
    if wanted is None:
        return _program(run, chain, needed)
    met = run.tape.data_sizes.places.keys() & {*wanted}
    return _program(run, wanted, needed, chain) if met and met <= {*chain} else None


def _whatever_sizes(captured_for: CapturedFor, second: int, run: Captured, chain: list[SizeNumber]) -> list[SizeNumber]:
    """As many first ones of these sizes as a run has shown to be given by the same calls whatever they are."""
    asked = set[int]()
    for size in (0, 1, second, LARGE):
        try:
            other = captured_for(size, frozenset(), chain[-1])
        except Exception:
            return []
        looked_after = other.tape.data_sizes.looked_after
        alike = chain[: _alike(run, other, chain)]
        alike = [number for number in alike if looked_after is None or number <= looked_after]
        if alike != chain:
            return alike
        asked.add(other.tape.asked)
        if len(asked) > 1:  # it loops over what it has found
            return []
    return chain


def _alike(run: Captured, other: Captured, numbers: Sequence[SizeNumber]) -> int:
    """Of how many first ones of these sizes the programs of two runs are the same."""
    met = other.tape.data_sizes.places
    most = sum(1 for _ in itertools.takewhile(met.__contains__, numbers))
    counts = range(1, most + 1)
    return bisect.bisect_left(
        counts, True, key=lambda count: not _are_equal([_program(one, numbers[:count], ()) for one in (run, other)])
    )


def _last(wanted: Sequence[SizeNumber] | None) -> SizeNumber | None:
    """Where a run may end that is to meet these sizes; None if it is to meet all."""
    return max(wanted) if wanted else None


def _first_after(run: Captured, known: Collection[SizeNumber]) -> SizeNumber | None:
    """The number of the first size after all that this program can give: another one gives that."""
    last = max(_independent(run, known), default=None)
    return last and min((number for number in run.tape.data_sizes.places if number > last), default=None)


def _until(run: Captured, end: SizeNumber | None) -> dict[SizeNumber, Place]:
    """What has the sizes of a run that ends there."""
    return {number: place for number, place in run.tape.data_sizes.places.items() if end is None or number <= end}


def _answers(
    captured_for: CapturedFor,
    size: int,
    known: Collection[SizeNumber],
    wanted: Sequence[SizeNumber] | None,
    is_quick: bool,
    takes_errors: bool,
) -> tuple[frozenset[SizeNumber], list[Captured]]:
    """The answers to take, so that as many sizes as possible are met: the numbers of those that are False.
    And for each that it can give a run where it is the other one; see count for `is_quick`.

    Args:
        takes_errors: whether those are left out of which the other one leads to an error.
    """

    def met(run: Captured) -> int:
        return sum(not wanted or number in wanted for number in run.tape.data_sizes.places)

    @functools.cache
    def met_without_any() -> int:
        """As where each answer of a loop that ends early lets it go on."""
        try:
            return met(captured_for(size, ALL_ANSWERS, _last(wanted)))
        except Exception:
            return 0  # the function need not run so

    false: frozenset[SizeNumber] = frozenset()
    try:
        captured_for(size, false, _last(wanted))
    except Refusal:
        raise
    except Exception:  # all of them together, as where each class is absent
        false = ALL_ANSWERS
    while True:
        run = captured_for(size, false, _last(wanted))
        flipped: list[Captured] = []
        if is_quick and wanted and met(run) == len(wanted):
            return false, flipped
        answers = [number for number in _independent(run, known) if number.is_answer]
        for number in reversed(answers):  # the last one of a loop leads on
            try:
                flipped.append(captured_for(size, false ^ {number}, _last(wanted)))
            except Refusal:
                raise
            except Exception as error:
                if takes_errors:  # which the program raises when it is captured for that answer
                    continue
                raise _OtherAnswer(error) from None
            if met(flipped[-1]) > met(run):
                false ^= {number}
                if met(flipped[-1]) < met_without_any():
                    false = ALL_ANSWERS
                break
        else:
            return false, flipped


def _with_zeros(
    captured_for: CapturedFor,
    size: int,
    false: frozenset[SizeNumber],
    run: Captured,
    known: Collection[SizeNumber],
    end: SizeNumber | None,
) -> Iterator[Captured]:
    """Runs in which one of the first integers is 0: Python may ask for that, as whether an expert has something to do,
    and meet other sizes then."""
    places = run.tape.data_sizes.places.items()
    integers = [number for number, place in places if place.dimension == "value" and number not in known]
    for number in integers[:_MOST_ZEROS]:
        with contextlib.suppress(Exception):  # the function need not run with it
            yield captured_for(size, false | {number}, end)


def _fixed(found: Count, others: Iterable[Captured]) -> set[SizeNumber]:
    """Those of its sizes that are the same in other runs that have them."""

    @functools.cache
    def text_of(*numbers: SizeNumber) -> bytes:
        return text(_program(found.run, numbers, ()).listing)

    fixed = {*found.numbers}
    for other in others:
        met = tuple(number for number in found.numbers if number in fixed and number in other.tape.data_sizes.places)
        if text(_program(other, met, ()).listing) != text_of(*met):
            fixed -= {
                number for number in met if text(_program(other, [number], ()).listing) != text_of(number)
            }  # fmt: skip
    return fixed


def _are_equal(found: Sequence[Count]) -> bool:
    """Whether the programs are the same."""
    return len({text(one.listing) for one in found}) == 1


def _independent(run: Captured, known: Collection[SizeNumber]) -> list[SizeNumber]:
    """The numbers of unknown sizes that follow from no tensor of another unknown size."""
    sizes = run.tape.data_sizes
    found = []
    for number, place in sizes.places.items():
        if number not in known:
            made = {register for i in _behind(run, place) for register in run.tape.calls[i].results}
            others = {size for register in made for size in sizes.sized.get(register, ())}  # type: ignore[arg-type]
            if others <= {number, *known}:
                found.append(number)
    return found


def _behind(run: Captured, place: Place) -> set[int]:
    """The positions of the calls that a size follows from."""
    return _behind_registers(run.tape, [place.register], place.calls)


def _behind_registers(tape: Tape, registers: Iterable[int], calls: int) -> set[int]:
    """The positions of the calls that some registers follow from: of so many first ones all that touch their memory, or
    that of what those take."""
    tensors = tape.tensors
    wanted = {storage_of(tensors[number]) for number in registers}
    found = set()
    for i, call in reversed([*enumerate(tape.calls[:calls])]):
        touched = {storage_of(tensors[number]) for number in (*call.results, *call.written) if number is not None}
        if not wanted.isdisjoint(touched):
            found.add(i)
            wanted.update(storage_of(tensors[number]) for number in call.operands)
    return found


def _program(
    run: Captured, numbers: Sequence[SizeNumber], needed: Collection[int], given: Collection[SizeNumber] | None = None
) -> Count:
    """The program that gives these sizes: of those that are not `given`, 0."""
    own = _copied(run)
    present = [number for number in numbers if given is None or number in given]
    places = [own.tape.data_sizes.places[number] for number in present]
    behind = set().union(*(_behind(own, place) for place in places))
    made = with_draws(own.tape, behind, functools.partial(_behind_registers, own.tape))
    calls: list[Call] = []
    outputs: dict[SizeNumber, int] = {}
    for i in range(len(own.tape.calls) + 1):
        for number, place in zip(present, places, strict=True):
            if place.calls == i:
                more, outputs[number] = _size(own, place)
                calls += more
        calls += map(replace, made.get(i, ()))
    for number in numbers:
        if number not in outputs:
            more, outputs[number] = _nothing(own)
            calls += more
    part = replace(
        own,
        forward=given_back(own.tape, calls),
        backward=[],
        outputs=[outputs[number] for number in numbers],
        cotangents=[None for _ in numbers],
        gradients=[None for _ in run.inputs],
    )
    listing = split(part, (), in_one=True).forward
    taken = {number for call in listing.calls for number in call.operands}
    listing.inputs = [number for i, number in enumerate(run.inputs) if number in taken or i in needed]
    positions = [run.inputs.index(number) for number in listing.inputs]
    _copy_written_inputs(listing)
    return Count(run, [*numbers], listing, positions)


def _copied(run: Captured) -> Captured:
    """The run, to make a program of, which changes constants."""
    tape = copy.copy(run.tape)
    tape.constants, tape.fresh = {**tape.constants}, {*tape.fresh}
    return replace(run, tape=tape)


def _copy_written_inputs(listing: Listing) -> None:
    """Have the program write to copies: the function itself runs after it."""
    tensors = listing.tape.tensors
    written = {storage_of(tensors[number]) for call in listing.calls for number in call.written}
    for i, number in enumerate(listing.inputs):
        if storage_of(tensors[number]) in written:
            listing.inputs[i] = new_register(listing.tape, tensors[number])
            clone = torch.ops.aten.clone.default
            listing.calls.insert(0, Call(clone, [Register(listing.inputs[i]), torch.preserve_format], [number]))


def _nothing(run: Captured) -> tuple[list[Call], int]:
    """As `_size`, of a size of 0."""
    tape = run.tape
    on = tape.tensors[run.inputs[0]].device
    with tape.fake_mode:
        shape = new_register(tape, torch.empty(2, dtype=torch.int64, device=on))
    return [Call(torch.ops.aten.zeros.default, [[2], torch.int64, DEFAULT, on, DEFAULT], [shape])], shape


def _size(run: Captured, place: Place) -> tuple[list[Call], int]:
    """The calls that give the shape of what carries a size, and its register, on the program's device."""
    tape = run.tape
    calls: list[Call] = []

    def call(op: Any, arguments: list[Any], *shape: int) -> int:
        with tape.fake_mode:
            result = new_register(tape, torch.empty(shape, dtype=torch.int64, device=on))
        calls.append(Call(op, arguments, [result]))
        return result

    aten = torch.ops.aten
    register, dimension = place.register, place.dimension
    on = tape.tensors[register].device
    if dimension == "marked":
        register = call(aten.nonzero.default, [Register(register)], 0, tape.tensors[register].dim())
        dimension = 0
    more, size = tape.size(register, dimension)
    calls += more
    if dimension == "value":
        is_size = call(aten.ge.Scalar, [Register(size), 0], 1)
        calls.append(Call(aten._assert_async.msg, [Register(is_size), _NEGATIVE + in_line(place.line)], []))
    size = call(aten._to_copy.default, [Register(size), *[DEFAULT] * 2, on, *[DEFAULT] * 3], 1)
    nothing = call(aten.zeros_like.default, [Register(size), *[DEFAULT] * 5], 1)
    return calls, call(aten.cat.default, [[Register(size), Register(nothing)], 0], 2)
