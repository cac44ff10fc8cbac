"""What the integers of programs are where data decides sizes, out of those that were captured (alike.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Sizes = tuple[int, ...]
Matrix = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Rule:
    """That an integer is a feature of the sizes some times, and more.

    Args:
        feature: the position among the features.
        times, more: integers.
        other: the position of another integer of which this one is so much more; None if it is none.
    """

    feature: int
    times: int
    more: int
    other: int | None


class _Product(NamedTuple):
    """That an integer is the product of two factors, some times."""

    one: int
    other: int
    times: int


class Rules:
    """What each of some integers may be: a size, or the product of two, some times and with a number more; else a sum
    of all sizes, each some times; else another one of these integers with such a size more; else the product of two of
    the sizes and these integers some times, as `batch * (length - 1)`.

    Args:
        sizes: those of some captures.
        columns: for each capture these integers.
        wholes: the positions of sizes that are shares of one.
    """

    def __init__(self, sizes: Sequence[Sizes], columns: Matrix, wholes: Sequence[tuple[int, ...]]) -> None:
        self._features = _features(np.array(sizes, dtype=np.int64))
        self._rules: dict[int, list[Rule]] = {}  # each integer's after those that it follows from
        self._columns = columns
        singles = self._singles = len(sizes[0])
        left = [i for i in range(columns.shape[1]) if not self._add(i, singles, None)]
        left = [i for i in left if not self._add(i, self._features.shape[1], None)]
        follow = {whole[-1] for whole in wholes}
        self._summands = [i for i in range(singles) if i not in follow]
        self._sums = _sums(self._features[:, self._summands], columns, left)
        left = [i for i in left if i not in self._sums]
        before = -1
        while before != len(left):
            before, known = len(left), [*self._sums, *self._rules]
            left = [i for i in left if not [j for j in known if self._add(i, singles, j)]]
        self._known = [*self._sums, *self._rules]
        factors = np.concatenate([self._features[:, :singles], columns[:, self._known]], axis=1)
        products = [(i, _products(factors, columns[:, i])) for i in left]
        self._products = {i: found for i, found in products if found}

    def of_one_size(self, i: int) -> list[Rule]:
        """The rules of an integer that follows from one size, and changes with it."""
        rules = [rule for rule in self._rules.get(i, []) if rule.other is None and rule.times]
        return rules if all(rule.feature < self._singles for rule in rules) else []

    def told(self, sizes: Sizes) -> list[int | None]:
        """The integers at other sizes, where all that they may be is one."""
        [features] = _features(np.array([sizes], dtype=np.int64))
        found: list[int | None] = [None] * self._columns.shape[1]
        for i, times in self._sums.items():
            found[i] = int(times @ [1, *(sizes[at] for at in self._summands)])
        for i, rules in self._rules.items():
            bases = [0 if rule.other is None else found[rule.other] for rule in rules]
            if None not in bases:
                values = {
                    base + rule.times * int(features[rule.feature]) + rule.more  # type: ignore[operator]
                    for base, rule in zip(bases, rules, strict=True)
                }
                found[i] = values.pop() if len(values) == 1 else None
        factors = [*sizes, *(found[i] for i in self._known)]
        for i, products in self._products.items():
            pairs = [(factors[product.one], factors[product.other], product.times) for product in products]
            given = {None if one is None or other is None else one * other * times for one, other, times in pairs}
            found[i] = given.pop() if len(given) == 1 else None
        return found

    def _add(self, i: int, features: int, other: int | None) -> bool:
        """Note the rules of an integer that take one of the first features. Gives whether there are some."""
        column = self._columns[:, i] - (0 if other is None else self._columns[:, other])
        steps, of_features = column - column[0], self._features[:, :features] - self._features[0, :features]
        moves = of_features != 0
        where = moves.argmax(0)  # the first capture in which a feature is another one
        divisors = np.where(moves.any(0), of_features[where, np.arange(features)], 1)
        times = steps[where] // divisors
        fits = moves.any(0) & (steps[:, None] == times * of_features).all(0)
        rules = [
            Rule(int(feature), int(times[feature]), int(column[0] - times[feature] * self._features[0, feature]), other)
            for feature in np.flatnonzero(fits)
        ]
        if rules:
            self._rules.setdefault(i, []).extend(rules)
        return bool(rules)


def _sums(sizes: Matrix, columns: Matrix, positions: list[int]) -> dict[int, Matrix]:
    """For those integers that are a number and all sizes, each some times: how many times, where the captures leave one
    answer, and one of them more than they need."""
    design = np.concatenate([np.ones_like(sizes[:, :1]), sizes], axis=1)
    if not positions or len(design) <= design.shape[1] or np.linalg.matrix_rank(design) < design.shape[1]:
        return {}
    wanted = columns[:, positions]
    times = np.rint(np.linalg.lstsq(design, wanted, rcond=None)[0]).astype(np.int64)
    fits = (design @ times == wanted).all(0)
    return {i: times[:, at] for at, i in enumerate(positions) if fits[at]}


def _products(factors: Matrix, column: Matrix) -> list[_Product]:
    """Those that an integer may be, out of the factors in each capture."""
    one, other = np.triu_indices(factors.shape[1])
    products = factors[:, one] * factors[:, other]
    is_any = products != 0
    where, positions = is_any.argmax(0), np.arange(len(one))
    times = column[where] // np.where(is_any.any(0), products[where, positions], 1)
    fits = (products * times == column[:, None]).all(0)
    return [_Product(int(one[at]), int(other[at]), int(times[at])) for at in np.flatnonzero(fits)]


def _features(sizes: Matrix) -> Matrix:
    """The sizes, and the products of two."""
    one, other = np.triu_indices(sizes.shape[1])
    return np.concatenate([sizes, sizes[:, one] * sizes[:, other]], axis=1)
