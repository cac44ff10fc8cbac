"""Programs for sizes at which nothing was captured, out of those that were captured at others.

Where data decides sizes, each step may have others, and a capture takes a hundred times as long as a run. Programs of
one function are mostly alike but for integers, which follow from the sizes: the size of a view, the place of a part in
what is put together. So the integers of some captures tell those at sizes between them. 0 and 1, which PyTorch treats
otherwise, are as they were captured. It is relied on where the last captures could have been told before they were
made. The program checks the sizes when it runs, as a captured one does.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import operator
import os
import pathlib
import re
import tempfile
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bridge.programs.integer_rules import Matrix, Rules, Sizes
from bridge.programs.loop_integers import INTEGER, are_of_a_loop
from bridge.programs.plan import Plan

_LITERAL = re.compile(rb"(?<![\w.])\d{1,9}(?![\w.])")
_TOLD = 2  # so many captures have to be told before they are made
_ENOUGH = 4  # captures that are alike, to expect that further ones are
_MOST_CAPTURES = 96  # those of more are not looked at: they do not become alike any more
_MOST_KEPT = 64  # plans: MindSpore asks for the shapes of a launch shortly before it
_FROM = 2  # sizes that PyTorch treats alike
_OF_ALL_RESTS = (3, 4, 5, 7, 12)  # with _FROM they leave each rest of a division by 2, 3 and 4


@dataclass(frozen=True)
class _Parts:
    """What a plan consists of.

    Args:
        form: a digest of all that is no integer.
        texts: for each program the parts of its text between the integers.
        integers: those of the programs and their results' shapes, program after program.
    """

    form: str
    texts: list[list[bytes]]
    integers: list[int]


def named_integers(files: Iterable[str], objects: Iterable[Any], sizes: Iterable[int]) -> frozenset[int]:
    """The numbers that code may compare a size with: those that stand in its files; and those in the attributes of its
    objects and the sizes at hand, with their neighbours."""
    literals: set[int] = set()
    for file in files:
        with contextlib.suppress(OSError):
            literals.update(map(int, _LITERAL.findall(pathlib.Path(file).read_bytes())))
    found = set(sizes)
    for value in objects:
        own = [*vars(value).values()]
        lists = [item for one in own if isinstance(one, (list, tuple)) for item in one]
        tables = [item for one in own for item in getattr(one, "__dict__", {}).values()]  # a configuration's
        found.update(one for one in (*own, *lists, *tables) if type(one) is int)
    return frozenset(literals | {near for number in found for near in (number - 1, number, number + 1)})


class Alike:
    """What the plans of one function for several sizes have in common.

    Args:
        is_answer: for each size, whether it is the answer to a question, which leads to other calls.
        lists: for each size the number of the list that Python got it in, as by `tolist()`; another one for each that
            is in none. Where the calls that take the integers of a list are the same for each, as those of a loop are,
            the function is taken to do with each what it does with the others.
        named: numbers that the function may ask for, as in `if len(x) == 16`: what a size of one of these leads to is
            captured.
    """

    def __init__(self, is_answer: Sequence[bool], lists: Sequence[int], named: Collection[int]) -> None:
        self._is_answer, self._lists, self._named = is_answer, np.array(lists), named
        self._wholes: list[tuple[int, ...]] = []
        self._samples: dict[Sizes, tuple[Plan, _Parts]] = {}
        self._told: OrderedDict[Sizes, Plan] = OrderedDict()
        self._made: dict[tuple[Sizes, ...], _Group] = {}
        self._tried: set[Sizes] = set()  # further ones

    def add(self, sizes: Sizes, plan: Plan) -> None:
        """A plan was captured."""
        if len(self._samples) < _MOST_CAPTURES:
            parts = _taken_apart(plan)
            like = next((other for _, other in self._samples.values() if other.form == parts.form), parts)
            self._samples[sizes] = plan, replace(parts, texts=like.texts)
            self._made.clear()

    def note_whole(self, shares: Iterable[int]) -> None:
        """The sizes with these positions have to have a certain sum (shares.py)."""
        whole = tuple(shares)
        if whole not in self._wholes:
            self._wholes.append(whole)
            self._made.clear()

    def plan(self, sizes: Sizes) -> Plan | None:
        """That for these sizes, if it follows from those that were captured."""
        if sizes in self._told:
            self._told.move_to_end(sizes)
            return self._told[sizes]
        for group in self._groups(sizes):
            spans = group.spans(sizes) and group.has(self._named_in(sizes))
            integers = group.integers(sizes) if spans else None
            if integers is not None:
                found = self._told[sizes] = group.plan(integers)
                if len(self._told) > _MOST_KEPT:
                    _forget(self._told.popitem(last=False)[1])
                return found
        return None

    def further(self, sizes: Sizes) -> list[Sizes]:
        """Sizes to capture after these, so that those between need no capture."""
        group = next((group for group in self._groups(sizes) if len(group) >= _ENOUGH), None)
        if group is None or len(self._samples) >= _MOST_CAPTURES:
            return []
        shares = {*itertools.chain.from_iterable(self._wholes)}
        large = [i for i, size in enumerate(sizes) if size >= _FROM and i not in shares]
        # With _FROM and STAND_INS these leave each rest of a division by 2, 3 and 4, which a function may ask for.
        top = 2 * max(sizes) + (3 - 2 * max(sizes)) % 12
        step = max(top // max(len(large), 1), 1)

        def with_large(values: Iterable[int]) -> Sizes:
            others = dict(zip(large, values, strict=False))
            return tuple(others.get(i, size) for i, size in enumerate(sizes))

        has_less, has_more = group.has_around(sizes)
        found = [] if has_less else [with_large(itertools.repeat(_FROM))]
        found += [] if has_more else [with_large(itertools.repeat(top))]
        rising = with_large(itertools.count(_FROM, step))
        falling = with_large(itertools.count(_FROM + step * len(large), -step))
        found += [
            with_large(itertools.repeat(size)) for size in dict.fromkeys([13, *filter(None, self._named_in(sizes))])
        ]
        found += [one for one in (rising, falling) if not group.has_order(one)]
        found += _with_one_large(sizes, self._wholes)
        new = [one for one in found if one not in self._tried]
        self._tried.update(new)
        return new

    def _named_in(self, sizes: Sizes) -> list[int]:
        """The sizes that are such numbers, and 0 in the place of the others."""
        return [size if size in self._named and size >= _FROM else 0 for size in sizes]

    def _groups(self, sizes: Sizes) -> Iterator[_Group]:
        """The captures that these sizes may be like: those of the same answers and with the same sizes of 0 and 1; or
        all of the same answers. Of each, those first that are not much larger: beyond a tensor's size, a slice takes
        what there is."""
        alike = [one for one in self._samples if self._answers(one) == self._answers(sizes)]
        same = [one for one in alike if _small(one) == _small(sizes)]
        for known in (_not_larger(same, sizes), same, _not_larger(alike, sizes), alike):
            key = tuple(known)
            if key not in self._made and len({self._samples[one][1].form for one in known}) == 1:
                samples = [(one, *self._samples[one]) for one in known]
                self._made[key] = _Group(samples, self._wholes, self._lists)
            if key in self._made:
                yield self._made[key]

    def _answers(self, sizes: Sizes) -> Sizes:
        return tuple(itertools.compress(sizes, self._is_answer))


class _Group:
    """Captures whose programs are alike but for integers. `wholes` are positions of sizes that are shares of one; see
    Alike for `lists`."""

    def __init__(
        self, samples: Sequence[tuple[Sizes, Plan, _Parts]], wholes: Sequence[tuple[int, ...]], lists: Matrix
    ) -> None:
        self._wholes, self._lists = wholes, lists
        self._whole_of = np.full(len(samples[0][0]), -1)
        for number, whole in enumerate(wholes):
            self._whole_of[[*whole]] = number
        self._sizes = [sizes for sizes, _, _ in samples]
        self._all: Matrix = np.array(self._sizes, dtype=np.int64)
        self._orders = np.stack([_order(sizes) for sizes in self._all])
        _, self._like, self._parts = samples[0]
        rows = np.array([parts.integers for _, _, parts in samples], dtype=np.int64)
        self._varying = np.flatnonzero((rows != rows[0]).any(0))
        # Many integers are the same in all captures.
        self._columns, self._column_of = np.unique(rows[:, self._varying], axis=1, return_inverse=True)
        self._column_of = self._column_of.reshape(-1)

    def __len__(self) -> int:
        return len(self._sizes)

    def spans(self, sizes: Sizes) -> bool:
        """Whether the sizes lie between some that were captured: then a function that asks whether one, or some
        together, is more than a number does what it did there. And whether each two are in an order in which they were:
        a function may ask which of them is more."""
        return all(self.has_around(sizes)) and self.has_order(sizes)

    def has(self, sizes: Sequence[int]) -> bool:
        """Whether each of the sizes that is not 0 was captured in its place, or in its list."""
        own = np.array(sizes)
        missing = np.flatnonzero(~((self._all == own).any(0) | (own == 0)))
        return all((self._loops[i], sizes[i]) in self._sizes_in_loops for i in missing)

    def has_order(self, sizes: Sizes) -> bool:
        """Whether each two of these were captured in the same order, or others of their lists were; but for shares of
        two wholes."""
        one, other = self._whole_of[:, None], self._whole_of[None, :]
        are_apart = (one != other) & (one >= 0) & (other >= 0)
        order = _order(np.array(sizes))
        missing = np.argwhere(~((self._orders == order).any(0) | are_apart))
        return all((self._loops[i], self._loops[j], order[i, j]) in self._orders_in_loops for i, j in missing)

    @functools.cached_property
    def _loops(self) -> list[int]:
        """For each size its position, or one number for all of a list that are those of a loop."""
        found = [*range(len(self._lists))]
        programs = [
            (pathlib.Path(one.path).read_bytes()[: one.text_size], sum(len(shape) for shape, _ in one.results))
            for one in (self._like.forward, *self._like.backward)
        ]
        rules = {
            int(position): self._rules.of_one_size(column)
            for position, column in zip(self._varying, self._column_of, strict=True)
        }
        for number in set(self._lists):
            places = np.flatnonzero(self._lists == number).tolist()
            if are_of_a_loop(places, rules, programs):
                for place in places:
                    found[place] = -1 - number
        return found

    @functools.cached_property
    def _sizes_in_loops(self) -> set[tuple[int, int]]:
        return {pair for row in self._all.tolist() for pair in zip(self._loops, row, strict=True)}

    @functools.cached_property
    def _orders_in_loops(self) -> set[tuple[int, int, int]]:
        """Where two sizes are, and which of them is more, of all that were captured."""
        pairs = np.argwhere(~np.eye(len(self._loops), dtype=bool)).tolist()
        return {(self._loops[i], self._loops[j], order[i, j]) for order in self._orders for i, j in pairs}

    def has_around(self, sizes: Sizes) -> tuple[bool, bool]:
        """Whether other sizes were captured of which none is more than these, and others of which none is less. Shares
        cannot all be more: each of them was."""
        own = np.array(sizes)
        others = (np.minimum(self._all, _FROM) == np.minimum(own, _FROM)).all(1) & (self._all != own).any(1)
        is_share = self._whole_of >= 0

        def has(are_beyond: Any) -> bool:
            found = others & are_beyond[:, ~is_share].all(1)
            return bool(found.any() and (others[:, None] & are_beyond[:, is_share]).any(0).all())

        return has(self._all <= own), has(self._all >= own)

    @functools.cached_property
    def is_relied_on(self) -> bool:
        """Whether the last captures follow from those before."""
        before = len(self._sizes) - _TOLD
        if before < _TOLD:
            return False
        rules = Rules(self._sizes[:before], self._columns[:before], self._wholes)
        return all(
            rules.told(sizes) == column.tolist()
            for sizes, column in zip(self._sizes[before:], self._columns[before:], strict=True)
        )

    def integers(self, sizes: Sizes) -> list[int] | None:
        """Those of the programs for these sizes; None if they do not follow."""
        if not self.is_relied_on:
            return None
        told = self._rules.told(sizes)
        if None in told:
            return None
        found = list(self._parts.integers)
        for position, column in zip(self._varying, self._column_of, strict=True):
            found[position] = told[column]  # type: ignore[assignment]
        return found

    @functools.cached_property
    def _rules(self) -> Rules:
        return Rules(self._sizes, self._columns, self._wholes)

    def plan(self, integers: list[int]) -> Plan:
        """The plan with these integers. Its programs are in files until they are loaded."""
        left = iter(integers)
        programs = []
        for program, texts in zip((self._like.forward, *self._like.backward), self._parts.texts, strict=True):
            own = [b"i%d;" % number for number in itertools.islice(left, len(texts) - 1)]
            text = b"".join(itertools.chain.from_iterable(itertools.zip_longest(texts, own, fillvalue=b"")))
            lines = pathlib.Path(program.path).read_bytes()[program.text_size :]
            results = [(tuple(itertools.islice(left, len(shape))), dtype) for shape, dtype in program.results]
            programs.append(replace(program, path=_written(text + lines), results=results, text_size=len(text)))
        return replace(self._like, forward=programs[0], backward=programs[1:])


def _taken_apart(plan: Plan) -> _Parts:
    texts, integers = [], []
    for program in (plan.forward, *plan.backward):
        parts = INTEGER.split(pathlib.Path(program.path).read_bytes()[: program.text_size])
        texts.append(parts[::2])
        integers += [*map(int, parts[1::2]), *(size for shape, _ in program.results for size in shape)]
    content = hashlib.sha256(json.dumps(_without_sizes(plan)).encode())
    for text in itertools.chain.from_iterable(texts):
        content.update(b"%d:" % len(text) + text)
    return _Parts(content.hexdigest(), texts, integers)


def _without_sizes(plan: Plan) -> list[Any]:
    """What makes a plan besides its programs' texts."""
    programs = [
        [program.groups, [(len(shape), dtype) for shape, dtype in program.results], program.changes, program.dtypes]
        for program in (plan.forward, *plan.backward)
    ]
    return [
        programs, plan.results, plan.tree, plan.sources, plan.gradients, plan.written, plan.no_gradient
    ]  # fmt: skip


def _order(sizes: Matrix) -> Matrix:
    """For each two of them which is more."""
    return np.sign(sizes[:, None] - sizes[None, :])


def _with_one_large(sizes: Sizes, wholes: Iterable[tuple[int, ...]]) -> list[Sizes]:
    """Sizes to capture of which, in each whole, one share is as large as it can be, each in turn, and the others are
    small and equal. Those of 0 and 1 stay."""
    large = [[i for i in whole if sizes[i] >= _FROM] for whole in wholes]
    most = max(map(len, large), default=0)
    turns = [*enumerate([_FROM] * most), *enumerate(_OF_ALL_RESTS if most else ())]
    found = []
    for turn, least in turns:
        others = [*sizes]
        for shares in filter(None, large):
            left = sum(sizes[i] for i in shares) - least * (len(shares) - 1)
            for i in shares if left >= _FROM else ():
                others[i] = left if i == shares[turn % len(shares)] else least
        found.append(tuple(others))
    return found


def _not_larger(samples: Sequence[Sizes], sizes: Sizes) -> list[Sizes]:
    """Those of which no size is more than the largest of some that are nowhere less than these sizes."""
    above = (max(one) for one in samples if one != sizes and all(map(operator.ge, one, sizes)))
    most = min(above, default=0)
    return [one for one in samples if max(one) <= most]


def _small(sizes: Sizes) -> Sizes:
    return tuple(min(size, _FROM) for size in sizes)


def _written(content: bytes) -> str:
    """The path of a new file with this content."""
    path = os.path.join(_folder().name, f"{os.getpid()}-{next(_numbers)}.program")
    pathlib.Path(path).write_bytes(content)
    return path


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bridge-")


_numbers = itertools.count()


def is_told(path: str) -> bool:
    """Whether a program was not captured."""
    return _folder.cache_info().currsize > 0 and os.path.dirname(path) == _folder().name


def _forget(plan: Plan) -> None:
    for path in plan.files:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
