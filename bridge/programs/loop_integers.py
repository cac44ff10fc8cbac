"""Which integers that Python got in a list are those of a loop: `for i, n in enumerate(lengths.tolist())`.

A loop does with each what it does with the others. What is known of one is known of all of them then (alike.py).
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bridge.op.encoding import Reader
from bridge.programs.integer_rules import Rule

INTEGER = re.compile(rb"i(-?\d+);")  # as bridge/op/encoding.py writes one
# A call in a program's text: its name, and which arguments it is given (text.py).
_CALL = re.compile(rb"s\d+:(\w+::[\w.]+)b[01];b[01];s\d+:([01nch]*)")
_CHECK = b"aten::eq.Scalar"
_FEWEST = 3  # fewer may each be for something else


def are_of_a_loop(
    places: Sequence[int], rules: Mapping[int, Sequence[Rule]], programs: Sequence[tuple[bytes, int]]
) -> bool:
    """Whether the calls that take these sizes are the same for each of them.

    Args:
        places: the sizes' positions.
        rules: for the integers of the programs that are not the same in all captures, by their positions, how each
            follows from one size.
        programs: each one's text, and how many integers its results' shapes have.
    """
    if len(places) < _FEWEST:
        return False
    calls: dict[int, Counter[Any]] = {place: Counter() for place in places}
    for position, call in _calls(rules, programs).items():
        if len({rule.feature for rule in rules[position]}) > 1:
            return False  # it may follow from several
        for rule in rules[position]:
            if rule.feature in calls:
                calls[rule.feature][call, rule.times, rule.more] += 1
    first, *others = calls.values()
    return bool(first) and all(other == first for other in others)


def _calls(varying: Collection[int], programs: Sequence[tuple[bytes, int]]) -> dict[int, tuple[Any, ...]]:
    """For those of these integers that calls take, besides the checks of sizes, the call: its name and its integers, of
    which those that vary are 0, and the place of the one."""
    found: dict[int, tuple[Any, ...]] = {}
    begin = 0
    for text, after in programs:
        integers = [(one.start(), int(one[1])) for one in INTEGER.finditer(text)]
        starts = [start for start, _ in integers]
        for call in _CALL.finditer(text):
            name, given = call.groups()
            reader = Reader.of(text, call.end())
            for _ in range(given.count(b"1") + given.count(b"n")):
                reader.value()
            own = range(bisect.bisect_left(starts, call.end()), bisect.bisect_left(starts, reader.position))
            taken = [i for i in own if begin + i in varying] if name != _CHECK else []
            values = tuple(0 if begin + i in varying else integers[i][1] for i in own)
            found |= {begin + i: (name, values, i - own.start) for i in taken}
        begin += len(integers) + after
    return found
