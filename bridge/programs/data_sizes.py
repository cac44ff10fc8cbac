"""Sizes that data decides, as of `x[x > 0]`, `torch.unique(x)` and `torch.zeros(int(x.max()))`, while a function is
captured.

A program is captured for sizes that are known. So one that counts runs before it (counts.py), and what it finds are
unknown sizes of inputs for the program itself (sizes.py). An integer that Python asks for counts as a size. So does the
answer to a question (`if x.sum() > 0`), which is 0 or 1, where the graph would refuse it otherwise.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from traceback import FrameSummary
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves, tree_map_only

from bridge.infer.shapes import STAND_INS
from bridge.programs.calls import Refusal, no_modes
from bridge.programs.memory import storage_of
from bridge.programs.shares import share
from bridge.programs.size_numbers import Path, SizeNumber
from bridge.programs.wrong_on_meta import MASK_DTYPES, form_of_call, masks, results_on_data

_PUT = {torch.ops.aten.index_put_.default, torch.ops.aten._index_put_impl_.default}
_PUT_IN_COPY = torch.ops.aten.index_put.default
# They find the elements that are not zero.
_MARKED = {torch.ops.aten.nonzero.default}


_MOST_SIZES = 1000
_MOST_ROUNDS = 100  # of a `while`, which may end where a size is 0
MOST_ANSWERS = 32
"""A run that asks for more is a loop."""

ALL_ANSWERS = frozenset([SizeNumber((), 0, 0)])
"""Stands for the numbers of all answers. Those beside it are not among them."""

# What unknown sizes are taken to be while MindSpore compiles, two at a time: what differs then is unknown in the
# results. The larger ones are for networks that make images smaller, the small ones for integers that are positions.
STAND_INS_OF_SIZES = (STAND_INS, (64, 96), (224, 256), (1, 2), (0, 1))


_LARGE = 4096

_T = TypeVar("_T")


class Apart(NamedTuple):
    """How far integers are apart: what lies between two of them is not empty then.

    Args:
        first: the first one.
        step: from each to the next.
        period: how many there are until it begins again with the first, as with the four of a box.
    """

    first: int
    step: int
    period: int

    def integer(self, position: int) -> int:
        """The one at a position among all of them."""
        return self.first + self.step * (position % self.period)


def apart(integers: int) -> Iterator[tuple[Apart, Apart]]:
    """What so many integers are taken to be, two at a time as above. The four of a box may come after the number of its
    image, and there may be one image."""
    periods = [] if integers < 2 else [4] if integers <= 4 else [4, 5]
    for period, step in itertools.product(periods, (2, 4, 8, 16, 32, 1)):
        yield Apart(0, step, period), Apart(int(period == 4), 2 * step, period)
    for step in (1, 2, 4) if periods else ():  # what lies before the first one is not empty, either
        yield Apart(1, step, periods[0]), Apart(2, 2 * step, periods[0])


def stand_ins(shapes: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """The pairs to try beside tensors of these shapes: also multiples of their sizes, as `found.view(len(x), -1)` takes
    them."""
    multiple = math.lcm(*{size for shape in shapes for size in shape if size > 0})
    return [*STAND_INS_OF_SIZES, *([(multiple, 2 * multiple)] if multiple <= _LARGE else [])]


_SAME_PLACE = "sizes that depend on data have places that a graph does not tell apart: PyNative mode takes them"

# A file, and a line of it.
Line = tuple[str, int]


class Ended(BaseException):
    """A run has met the sizes that it was for. The function's own code must not take it for an error."""


class TooManySizes(Refusal):
    """A run meets more sizes than a graph takes, as a loop that ends where one is 0. Other sizes do not help."""


class UnknownSize(Refusal):
    """Data decides a size, and the run is not told which.

    Attributes:
        shapes: those of the inputs with unknown sizes in that run; None if there are none.
        is_integer: whether it is an integer that Python asks for.
    """

    shapes: tuple[tuple[int, ...], ...] | None = None
    is_integer = False


@dataclass(frozen=True)
class Sizes:
    """What a run is told of the sizes that data decides, by their numbers (size_numbers.py).

    Args:
        known: some of them.
        others: what all others are taken to be; None if the run is to end at the first.
        both_ways: the lines of the program where an answer is a size, which the runs find; None if none is.
        false: the numbers of those among the others that are taken to be 0, or False.
        guessed: the numbers of those among the known that are taken to be what fits (fits.py).
        of_changed: whether answers of buffers that the run changes are sizes, too.
        wholes: the sums of integers among the others that are shares, by their numbers (shares.py).
        least: whether torch.bincount is taken to give no more numbers than it has to (`minlength`).
        are_late: whether an integer that Python asks for is a size only when Python needs it (data_floats.py).
        has_integers: whether such an integer may be a size.
        end: the run ends once it has met a size with this number, or a later one; None if it runs to its own end.
        apart: what the integers among the others are taken to be; None if they are what all others are.
        finds_looks: whether the run finds out if the function's own code looks at sizes (looks.py).
        tapes: takes those of the runs with them (tape.py), if somebody asks for them.
    """

    known: Mapping[SizeNumber, int] = field(default_factory=dict)
    others: int | None = None
    both_ways: set[Line] | None = None
    false: frozenset[SizeNumber] = frozenset()
    guessed: frozenset[SizeNumber] = frozenset()
    of_changed: bool = False
    wholes: Mapping[tuple[SizeNumber, ...], int] = field(default_factory=dict)
    least: bool = False
    are_late: bool = False
    has_integers: bool = True
    end: SizeNumber | None = None
    apart: Apart | None = None
    finds_looks: bool = False
    tapes: list[Any] | None = None


NOT_TOLD = Sizes()


@dataclass(frozen=True)
class Place:
    """What has a size.

    Args:
        register: of a tensor.
        dimension: the one of that size; or "marked" of a mask that marks so many elements, "value" of an integer, or
            "answer" of a bool.
        calls: how many calls of the run are made before it has that size.
        line: the program's that asks.
    """

    register: int
    dimension: int | Literal["marked", "value", "answer"]
    calls: int
    line: FrameSummary | None


@dataclass(frozen=True)
class Told:
    """A size that the run is told.

    Args:
        size: the number.
        place: what has it.
        is_guessed: whether it is what fits.
    """

    size: int
    place: Place
    is_guessed: bool


class DataSizes:
    """Those of one run.

    Args:
        sizes: see Sizes.
        tensors: those of the registers.
        path: where the function is.
        may_be_any: whether a size that nothing has counted may be any, as on the way to an error.

    Attributes:
        places: what has them, by their numbers.
        told: the integers among them, by their numbers.
        sized: for each register of which data decides sizes, their numbers.
        refused: why no further one is taken, but of a mask; empty if it is.
        looked_after: the number of the last size that there was when the function's own code first looked at one.
        takes_least, are_late, end: see Sizes.
    """

    def __init__(
        self,
        sizes: Sizes,
        tensors: Sequence[torch.Tensor],
        path: Path,
        may_be_any: Callable[[], bool],
    ) -> None:
        self.places: dict[SizeNumber, Place] = {}
        self.told: dict[SizeNumber, int] = {}
        self.sized: dict[int, list[SizeNumber]] = {}
        self.refused = ""
        self.looked_after: SizeNumber | None = None
        self._of_masks: dict[int, SizeNumber] = {}  # the numbers of sizes, by the masks' registers
        self._put: dict[int, int] = {}  # so many values have been put where a mask marks, by the masks' registers
        self.takes_least = sizes.least
        self.are_late = sizes.are_late
        self.end = sizes.end
        self._has_ended = False
        self._sizes = sizes
        self._tensors = tensors
        self._path = path
        self._may_be_any = may_be_any
        self._new: dict[SizeNumber, tuple[int, int]] = {}
        self._last: SizeNumber | None = None
        self._answers = 0  # so many have been asked for

    def look(self) -> None:
        """The function's own code looks at a size."""
        self.looked_after = self.looked_after or self._last

    def end_if_met(self) -> None:
        """Raise Ended if the run has met all that it was for. What has the last of them has to be made by now."""
        if self.end is not None and self._last is not None and self._last >= self.end:
            self._has_ended = True
            raise Ended

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Inside, the run may end so. Whatever error the function's own code makes of that is none."""
        try:
            yield
        except (Ended, Exception):
            if not self._has_ended:
                raise

    def results(self, func: Any, args: Any, kwargs: Any, fake_mode: FakeTensorMode, mask: int | None) -> Any:
        """What a call gives whose shapes data decides, with sizes in place of the unknown; None if data does not, after
        all. Call `note` then.

        Args:
            mask: the register of the mask that alone decides, if there is one.

        Raises:
            Refusal: what has the message, where PyTorch does not know the shapes, either.
            UnknownSize: see Sizes.
        """
        self._new = {}
        results = _symbolic(func, args, kwargs, least=0)
        numbers: dict[Any, SizeNumber] = {}
        # Where there is nothing, PyTorch knows that nothing is found.
        sized = results if _has_symbols(results) else _symbolic(func, args, kwargs, least=1)
        for i, tensor in enumerate(_tensors(sized)):
            for dimension, size in enumerate(tensor.shape):
                for symbol in sorted(_symbols(size) - numbers.keys(), key=str):
                    numbers[symbol] = self._number(mask, len(numbers))
                if isinstance(size, torch.SymInt) and size.node.expr in numbers:
                    self._new.setdefault(numbers[size.node.expr], (i, dimension))
        if not numbers:
            return None
        if len(self._new) != len(numbers) or (mask is not None and len(numbers) > 1):
            raise Refusal(f"{func.name()} asks for a shape that depends on data in a way that a graph does not follow")
        values = {symbol: self._size(number, mask) for symbol, number in numbers.items()}
        return _of_known_sizes(func, args, kwargs, results, values, fake_mode)

    def note(self, registers: list[int | None], mask: int | None, calls: int, line: FrameSummary | None) -> list[Told]:
        """These registers have the results of a call in this line, before which so many are made. Gives the new sizes
        that the run is told, and what has them after the call."""
        told = []
        for number, (result, dimension) in sorted(self._new.items()):
            register = registers[result]
            assert register is not None
            if number not in self.places:
                made = Place(register, dimension, calls + 1, line)
                self._add(number, made if mask is None else Place(mask, "marked", calls, line))
                told += self._told(number, made)
            if mask is not None:
                self._of_masks[mask] = number
            for each in registers:
                self.sized.setdefault(-1 if each is None else each, []).append(number)
        self._new = {}
        return told

    def _told(self, number: SizeNumber, place: Place) -> list[Told]:
        sizes = self._sizes
        return [Told(sizes.known[number], place, number in sizes.guessed)] if number in sizes.known else []

    def value(self, register: int, calls: int, line: FrameSummary | None) -> tuple[int, list[Told]]:
        """The integer of a tensor that Python asks for in this line, after so many calls; and what `note` gives.

        Raises: see results.
        """
        number = self._next_size()._replace(is_integer=True)
        found = self.told[number] = self._size(number, None)
        self._add(number, Place(register, "value", calls, line))
        return found, self._told(number, self.places[number])

    def answer(self, register: int, calls: int, line: FrameSummary | None) -> tuple[bool, list[Told]] | None:
        """The bool of a tensor that Python asks for in this line, after so many calls; and what `note` gives. None if
        it is no size.

        Raises:
            UnknownSize: see Sizes.
        """
        if self.refused or self.has_all_answers:
            return None
        number = self._next_answer()
        if number not in self._sizes.known and self._sizes.others is None:
            raise UnknownSize
        found = bool(self._sizes.known.get(number, not self._is_false(number)))
        self._answers += 1
        self._add(number, Place(register, "answer", calls, line))
        return found, self._told(number, self.places[number])

    @property
    def has_known(self) -> bool:
        """Whether the run is told sizes."""
        return bool(self._sizes.known)

    @property
    def has_all_answers(self) -> bool:
        """Whether the run has asked for as many as a graph takes."""
        return self._answers == MOST_ANSWERS

    def _add(self, number: SizeNumber, place: Place) -> None:
        if self._path.rounds > _MOST_ROUNDS:
            raise TooManySizes(
                "data decides where a loop ends, or its sizes in each of many rounds, which a graph does not follow: "
                "PyNative mode does"
            )
        if len(self.places) == _MOST_SIZES:
            raise TooManySizes(
                f"data decides {_MOST_SIZES} sizes, which are more than a graph takes: PyNative mode takes it"
            )
        if self._last is not None and number <= self._last:
            raise Refusal(_SAME_PLACE)
        self.places[number] = place
        self._last = number

    def note_put(self, mask: int, tensor: torch.Tensor, indices: Sequence[Any], values: torch.Tensor) -> None:
        """A call puts values where the mask of this register marks elements of the tensor. If no other index is given,
        it marks as many as there are values, unless there is one for all."""
        position, *others = (i for i, index in enumerate(indices) if index is not None)
        after = tensor.dim() - position - indices[position].dim()
        if not others and values.dim() > after and values.shape[-1 - after] != 1:
            self._put[mask] = values.shape[-1 - after]

    def forget(self, written: Iterable[int]) -> None:
        """Something writes to these registers."""
        touched = {storage_of(self._tensors[register]) for register in written}

        def untouched(of_masks: dict[int, _T]) -> dict[int, _T]:
            return {mask: n for mask, n in of_masks.items() if storage_of(self._tensors[mask]) not in touched}

        self._of_masks, self._put = untouched(self._of_masks), untouched(self._put)

    def _number(self, mask: int | None, before: int) -> SizeNumber:
        """That of the next size, after so many of the same call."""
        new = self._next_size(before)
        return new if mask is None or before else self._of_masks.get(mask, new)

    def _next_size(self, before: int = 0) -> SizeNumber:
        answers, sizes = self._asked_here()
        return SizeNumber(self._path.here, answers, sizes + 1 + before)

    def _next_answer(self) -> SizeNumber:
        return SizeNumber(self._path.here, self._asked_here()[0] + 1, 0)

    def _asked_here(self) -> tuple[int, int]:
        """How many answers the call at hand has asked for, and sizes since then."""
        last = self._last
        return (last.answers, last.sizes) if last is not None and last.path == self._path.here else (0, 0)

    def _is_false(self, number: SizeNumber) -> bool:
        """Whether it is taken to be 0, or False, unless it is known."""
        false = self._sizes.false
        return (number in false) != (number.is_answer and not false.isdisjoint(ALL_ANSWERS))

    def _size(self, number: SizeNumber, mask: int | None) -> int:
        if self.refused and mask is None:
            raise Refusal(self.refused)
        sizes = self._sizes
        size = sizes.known.get(number, sizes.others)
        if size is None and sizes.known and self._may_be_any():
            return STAND_INS[0]
        if size is None:
            raise UnknownSize
        if mask in self._put:
            return self._put[mask]
        if number in sizes.known:
            return size
        if number.is_integer and sizes.apart is not None:
            size = sizes.apart.integer(sum(before not in sizes.known for before in self.told))
        return share(number, 0 if self._is_false(number) else size, sizes.wholes, self.told)


def is_put(func: Any) -> bool:
    """Whether a call writes to the elements that a mask marks."""
    return func in _PUT or func is _PUT_IN_COPY


def put(func: Any, args: Any, fake_mode: FakeTensorMode) -> torch.Tensor:
    """What it gives."""
    if func in _PUT:
        return args[0]  # type: ignore[no-any-return]
    with no_modes(), fake_mode:
        return torch.clone(args[0])


def _symbolic(func: Any, args: Any, kwargs: Any, least: int) -> Any:
    """What a call gives, with symbols for sizes that data decides. Its arguments' sizes are taken to be `least` at
    least."""
    key = least, form_of_call(func, args, kwargs)
    results = _symbolic_results.get(key)
    if results is None:
        if len(_symbolic_results) == _MOST_KEPT:
            _symbolic_results.clear()
        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)

        def like(tensor: torch.Tensor) -> torch.Tensor:
            shape = [max(size, least) for size in tensor.shape]
            return torch.empty_strided(shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)

        with no_modes(), mode:
            args, kwargs = tree_map_only(torch.Tensor, like, (args, kwargs))
            results = _symbolic_results[key] = func(*args, **kwargs)
    return results


# By the calls, and by what their results follow from: a loop makes the same call many times.
_symbolic_results: dict[Any, Any] = {}
_MOST_KEPT = 256


def _tensors(results: Any) -> list[torch.Tensor]:
    return [result for result in tree_leaves(results) if isinstance(result, torch.Tensor)]


def _symbols(size: Any) -> set[Any]:
    return size.node.expr.free_symbols if isinstance(size, torch.SymInt) else set()


def _has_symbols(results: Any) -> bool:
    return any(_symbols(size) for tensor in _tensors(results) for size in tensor.shape)


def _of_known_sizes(
    func: Any, args: Any, kwargs: Any, results: Any, values: dict[Any, int], fake_mode: FakeTensorMode
) -> Any:
    """The results with these values of the symbols, and with the strides that the kernel gives them."""

    def known(size: Any) -> int:
        return int(size.node.expr.subs(values)) if isinstance(size, torch.SymInt) else size

    with no_modes():
        shapes = [[known(size) for size in tensor.shape] for tensor in _tensors(results)]
        strides = [[known(step) for step in tensor.stride()] for tensor in _tensors(results)]
    if any(len(tensor.shape) > 1 for tensor in _tensors(results) if _has_symbols(tensor)):
        (size,) = values.values()
        with no_modes(), torch.enable_grad():
            strides = _strides_on_data(func, args, kwargs, size, shapes) or strides
    layouts = iter(zip(shapes, strides, strict=True))

    def made(tensor: torch.Tensor) -> torch.Tensor:
        with fake_mode:
            return torch.empty_strided(*next(layouts), dtype=tensor.dtype, device=tensor.device)

    with no_modes():
        return tree_map_only(torch.Tensor, made, results)


def _strides_on_data(func: Any, args: Any, kwargs: Any, size: int, shapes: list[list[int]]) -> list[list[int]] | None:
    """The strides that the kernel gives results of these shapes, where data decides a size: where it marks so many
    elements, or has so many values. None if there cannot be so many.

    Raises Refusal if such data does not lead to these shapes.
    """
    decides = masks(func, args)
    is_masked = decides is not None or func in _MARKED
    decider = next(x for x in tree_leaves(args[0] if decides is None else decides) if _is_mask(x) or decides is None)
    numbers = torch.arange(decider.numel(), device=decider.device).view(decider.shape)
    if is_masked:
        kinds = [numbers < size]
    else:
        along = [
            torch.arange(n, device=decider.device).view(-1, *[1] * (decider.dim() - 1 - i))
            for i, n in enumerate(decider.shape)
        ]
        kinds = [n.clamp(max=size - 1).expand(decider.shape) for n in (numbers, *along)]
    for data in kinds:
        with contextlib.suppress(Exception):
            results = _tensors(results_on_data(func, args, kwargs, {id(decider): data.to(decider.dtype)}))
            if [list(result.shape) for result in results] == shapes:
                return [list(result.stride()) for result in results]
    if size <= decider.numel() and not is_masked:
        raise Refusal(f"{func.name()} asks for a shape that depends on data in a way that a graph does not follow")
    return None


def _is_mask(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in MASK_DTYPES
