"""Programs of inputs with sizes that only the run tells: a family, with a program for each size.

MindSpore compiles one graph. It asks for the shapes of a primitive's results at each launch whose sizes are new
(bridge/primitive/graph_shapes.py). Then the program for these sizes is captured, or taken from the store, and
ms_ext/programs/families.cpp is told of it. So what PyTorch does may follow from a size as it pleases, but for what the
graph has fixed: which tensors there are, and of which ranks and dtypes.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import math
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from bridge.infer.shapes import filled
from bridge.infer.trial import Spec as InferredSpec
from bridge.op import devices, dtypes
from bridge.op.encoding import Text
from bridge.op.table import SHARED
from bridge.primitive import graph_shapes
from bridge.primitive.graph_calls import add_lines
from bridge.programs.alike import Alike, is_told
from bridge.programs.calls import Refusal, in_lines
from bridge.programs.capture import Spec
from bridge.programs.counts import CARRIER, Nested
from bridge.programs.data_sizes import STAND_INS_OF_SIZES, Apart, TooManySizes, UnknownSize, apart, stand_ins
from bridge.programs.plan import Plan, ProgramFile
from bridge.programs.shares import NoShares, shared
from bridge.programs.size_numbers import SizeNumber

# The first two that are tried: `x[:n]` is all of x for a large n, and a part of it for a small one.
_FAR_APART = (STAND_INS_OF_SIZES[0][0], 1)
SUFFIX = " of all sizes"
_FAMILY = "family "
# What is tried for sizes that data decides, in the order in which Python asks for them: it may ask for one again.
_UNEQUAL = (range(1, 33), range(4, 36), (1, 2), (4, 5))
# And for integers that may be places in a table, in pairs or not, where as many are marked as are not the same.
_PLACES = Apart(0, 1, 3)
# And for integers between which there is something: the first of these with which the function runs.
_BETWEEN = (Apart(1, 3, 4), Apart(1, 1, 4))
# And for the shares of a whole.
_SHARES = (1, 2, 3)
# Of so many answers each is tried the other way while MindSpore compiles.
_MOST_FLIPPED = 8
# So many different sizes of those unknown may be ones that cannot change, as those that a weight's fit.
_MOST_FIXED = 2
# So many of the known sizes are tried for those unknown.
_MOST_OTHERS = 8
# Of calls before: the smallest size that is tried beside theirs, and how many times theirs the largest one is.
_SMALL = 2
_MUCH_LARGER = 4
# Of an input where sizes are guessed: for some calls PyTorch is asked with zeros.
_MOST_ELEMENTS = 2**27
_NOT_COUNTED = (
    "what data decides leads to a size that the graph does not count, because no run that was tried while MindSpore "
    "compiled had it: PyNative mode takes it"
)
Shape = tuple[int, ...]
PlanFor = Callable[[list[Spec], bool], Plan]


@contextlib.contextmanager
def trying() -> Iterator[None]:
    """Leaves out what PyTorch's losses say of sizes: those that are tried may never occur."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using a target size")
        yield


def is_family(program: ProgramFile) -> bool:
    """Whether it stands for programs of all sizes."""
    return program.path.startswith(_FAMILY)


class Unlike(Refusal):
    """The programs for two sizes do not fit into one graph."""


class OtherForm(Unlike):
    """What passes from forward to backward follows from a size that data decides, and what the function gives does
    not."""


@dataclass(frozen=True)
class AllSizes:
    """What a plan for all sizes is for.

    Args:
        specs: those of the inputs, with -1 for an unknown size.
        plan_for: makes the plan for inputs of known sizes. It is told whether that is to be quick: what is made so is
            not called, or the same as others.
        known: the shapes of all inputs in calls before, whose sizes were known.
        answers: the positions of inputs whose unknown size is 0 or 1, as the answer to a question.
        integers: the positions of inputs whose unknown size is an integer that Python asks for.
        carried: the positions of inputs whose unknown size data decides, by the numbers of these sizes.
        is_uniform: whether the plans have the form of uniform.py.
        is_count: whether the programs give further sizes that data decides.
        asks_otherwise: whether other answers may lead to sizes that nothing has counted.
        first: shapes of the inputs that have unknown sizes, to be tried first.
        named: see Alike.
        where: the line of the first size that data decides, for errors.
    """

    specs: list[Spec]
    plan_for: PlanFor
    known: Sequence[Sequence[Shape]]
    answers: Collection[int]
    integers: Collection[int]
    carried: Mapping[SizeNumber, int]
    is_uniform: bool
    is_count: bool
    asks_otherwise: bool
    first: Sequence[Shape] | None
    named: Collection[int]
    where: str


def for_all_sizes(wanted: AllSizes) -> Plan:
    """A plan whose programs are families.

    Raises:
        OtherForm: the plans need the form of uniform.py.
        UnknownSize: data decides a further size, at sizes that were tried.
        Unlike: which tensors there are, or their ranks, follows from an unknown size.
        Exception: what the function raises at all sizes that were tried.
    """
    family = _Family(wanted)
    _families.append(family)
    if wanted.asks_otherwise and len(wanted.answers) <= _MOST_FLIPPED:
        family.try_other_answers()
    return family.plan


class _Family:
    """The programs of one function for inputs of all sizes.

    Attributes:
        plan: what all of them have in common, with -1 for what is unknown.
    """

    def __init__(self, wanted: AllSizes) -> None:
        self._wanted = wanted
        self._specs = specs = wanted.specs
        self._answers = answers = wanted.answers
        self._unknown = [i for i, spec in enumerate(specs) if -1 in spec.shape]
        self._carriers = [
            i
            for i, position in enumerate(self._unknown)
            if position not in answers and specs[position] == Spec(CARRIER, torch.bool)
        ]
        # Of the inputs of unknown sizes, those that are integers.
        self._integers = [i for i, position in enumerate(self._unknown) if position in wanted.integers]
        self._plans: dict[tuple[Shape, ...], Plan] = {}
        self._shares: set[int] = set()  # of the inputs of unknown sizes, those that are shares of a whole
        dimensions = [(i, specs[i].shape) for i in self._unknown]
        self._alike = Alike(
            [i in answers for i, shape in dimensions for size in shape if size < 0],
            [self._list_of(i) for i, shape in dimensions for size in shape if size < 0],
            wanted.named,
        )
        self.plan = self._tried()

    def _list_of(self, position: int) -> int:
        """The position of the first of those inputs that carry integers which Python got in a list with that of this
        one; the position itself if it carries none."""
        numbers = {at: number for number, at in self._wanted.carried.items()}
        own = numbers.get(position)
        if own is None or not own.is_integer:
            return position
        return min(at for at, number in numbers.items() if number.is_integer and number[:2] == own[:2])

    def _tried(self) -> Plan:
        errors: list[Exception] = []
        pairs, first = self._guesses(), self._wanted.first
        if first is not None:
            pairs = itertools.chain(([first, shapes] for pair in self._guesses() for shapes in pair[::-1]), pairs)
        failed: set[tuple[Shape, ...]] = set()
        try:
            for shapes in _different(pairs):
                if any(isinstance(error, Unlike) for error in errors) and self._is_of_one_size(shapes):
                    continue
                if not failed.isdisjoint(map(tuple, shapes)):
                    continue
                try:
                    with trying():
                        (one, of_one), (other, of_other) = self._of_pair(shapes, failed)
                        found = self._with_larger(self._of_both(one, other), of_one, of_other)
                        return self._with_nothing(self._with_unequal(found, of_other), of_other)
                except Exception as error:
                    if self._is_for_all(error):
                        raise
                    errors.append(error)
            of_most = errors[min(1, len(errors) - 1)]  # of sizes that fit most functions
            unlike = [error for error in errors if isinstance(error, Unlike)]
            refusals = [error for error in (of_most, *errors) if isinstance(error, Refusal)]
            raise [*unlike, *refusals, of_most][0]  # what asks for something has run so far
        finally:
            errors.clear()  # this frame, which they hold, would keep them

    def _of_pair(
        self, shapes: Iterable[Sequence[Shape]], failed: set[tuple[Shape, ...]]
    ) -> list[tuple[Plan, Sequence[Shape]]]:
        """The plans for a pair of shapes. Notes the one with which the function does not run."""
        found = []
        for one in shapes:
            try:
                found.append(self._sharing(one))
            except Exception:
                failed.add(tuple(one))
                raise
        return found

    def try_other_answers(self) -> None:
        """Raise UnknownSize or Nested where one answer that is another one leads to a size that nothing counts."""
        tried = {self._answers_of(shapes) for shapes in self._plans}
        for shapes in {self._answers_of(shapes): shapes for shapes in reversed(self._plans)}.values():
            for i, (position, shape) in enumerate(zip(self._unknown, shapes, strict=True)):
                other = (*shapes[:i], (1 - shape[0], *shape[1:]), *shapes[i + 1 :])
                if position in self._answers and self._answers_of(other) not in tried:
                    tried.add(self._answers_of(other))
                    try:
                        self._made(other, is_quick=not self._wanted.is_count)
                    except (UnknownSize, Nested):
                        raise
                    except Exception:
                        continue  # these answers may not come together

    def _answers_of(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        return tuple(shape for position, shape in zip(self._unknown, shapes, strict=True) if position in self._answers)

    def _is_of_one_size(self, shapes: Sequence[Sequence[Shape]]) -> bool:
        """Whether a pair of shapes differs in no size but in answers, where there are sizes."""
        pairs = zip(self._unknown, *shapes, strict=True)
        sizes = [one == other for position, one, other in pairs if position not in self._answers]
        return bool(sizes) and all(sizes)

    def _with_unequal(self, found: Plan, shapes: Sequence[Shape]) -> Plan:
        """The same where sizes that data decides are not equal: what lies between two of them is not always empty."""
        for sizes in _UNEQUAL if self._carriers else ():
            if any(0 in shape for shape, _ in found.forward.results):
                unequal = [*shapes]
                for size, i in zip(itertools.cycle(sizes), self._carriers, strict=False):
                    unequal[i] = filled(CARRIER, size)
                with contextlib.suppress(Exception):  # the function need not run with these
                    found = self._of_both(found, self._sharing(unequal)[0])
        if self._shares and any(0 in shape for shape, _ in found.forward.results):
            of_whole = filled(CARRIER, 1 + sum(_SHARES) * len(self._shares))
            divided = [of_whole if i in self._carriers else shape for i, shape in enumerate(shapes)]
            for size, i in zip(itertools.cycle(_SHARES), sorted(self._shares), strict=False):
                divided[i] = filled(CARRIER, size)  # the last one gets what is left
            with contextlib.suppress(Exception):
                found = self._of_both(found, self._sharing(divided)[0])
        for integers in _BETWEEN if len(self._integers) > 1 else ():
            with contextlib.suppress(Exception):
                found = self._of_both(found, self._sharing(self._with_integers(shapes, integers))[0])
                break
        if len(self._integers) >= _PLACES.period:
            with contextlib.suppress(Exception):
                found = self._of_both(found, self._sharing(self._with_integers(shapes, _PLACES))[0])
        return found

    def _with_larger(self, found: Plan, one: Sequence[Shape], other: Sequence[Shape]) -> Plan:
        """The same with larger sizes where these two have others, if they are of calls: `x[:512]` has one size from
        512 on, and what is padded to that has one until there."""
        if self._carriers or not any(len(known) == len(self._specs) for known in self._wanted.known):
            return found
        larger = [
            tuple(a if a == b else _MUCH_LARGER * max(a, b) for a, b in zip(first, second, strict=True))
            for first, second in zip(one, other, strict=True)
        ]
        if all(math.prod(shape) <= _MOST_ELEMENTS for shape in larger):
            with contextlib.suppress(Exception):  # the function need not run with these
                found = self._of_both(found, self._sharing(larger)[0])
        return found

    def _with_nothing(self, found: Plan, shapes: Sequence[Shape]) -> Plan:
        """The same where data decides that there is nothing: functions ask for that (`if len(boxes) == 0`)."""
        if not self._carriers or self._wanted.is_count:
            return found
        try:
            return self._of_both(found, self._without(self._carriers, shapes))
        except Exception as error:  # the function need not run with nothing
            if self._is_for_all(error):
                raise
        # But perhaps where one is missing, as where data is grouped and some groups are empty.
        for i in sorted({self._carriers[0], self._carriers[-1]}) if len(self._carriers) > 1 else ():
            try:
                found = self._of_both(found, self._without([i], shapes))
            except Exception as error:
                if self._is_for_all(error):
                    raise
        return found

    def _without(self, carriers: Sequence[int], shapes: Sequence[Shape]) -> Plan:
        """The plan for these shapes, but for sizes that are 0."""
        return self._sharing([filled(CARRIER, 0) if i in carriers else shape for i, shape in enumerate(shapes)])[0]

    def _is_for_all(self, error: Exception) -> bool:
        """Whether an error at some sizes says that the plan for all of them has to be another one."""
        if self._wanted.is_count:
            return isinstance(error, (Nested, TooManySizes))
        if not self._carriers:
            return False
        return isinstance(error, UnknownSize) or (isinstance(error, OtherForm) and not self._wanted.is_uniform)

    def _of_both(self, first: Plan, second: Plan) -> Plan:
        number = len(_families)
        forward = _common(first.forward, second.forward, f"{_FAMILY}{number} forward")
        # See uniform.py: the row of bytes. A program that counts has none.
        if self._wanted.is_uniform and first.sources:
            forward.results[-1] = ((-1,), forward.results[-1][1])
        programs = zip(first.backward, second.backward, strict=False)
        backward = [_common(one, other, f"{_FAMILY}{number} backward") for one, other in programs]
        written = sorted({*first.written, *second.written})
        no_gradient = "" if self._wanted.is_uniform else first.no_gradient  # backward says so there
        found = replace(first, forward=forward, backward=backward, written=written, no_gradient=no_gradient)
        _check(found, second)
        return found

    def _guesses(self) -> Iterator[Sequence[Sequence[Shape]]]:
        """Pairs of shapes for the inputs of unknown sizes."""
        unknown = [self._specs[i].shape for i in self._unknown]

        def guess(size: int, answer: int) -> list[Shape]:
            fill = [answer if i in self._answers else size for i in self._unknown]
            return [filled(shape, one) for shape, one in zip(unknown, fill, strict=True)]

        for first, second in (_FAR_APART, *stand_ins(spec.shape for spec in self._specs)):
            pair = [guess(first, 0), guess(second, 1)]
            if all(math.prod(shape) <= _MOST_ELEMENTS for shapes in pair for shape in shapes):
                yield pair
        (usual, second), *_ = STAND_INS_OF_SIZES
        for of_usual, of_second in apart(len(self._integers)):
            yield [self._with_integers(guess(usual, 0), of_usual), self._with_integers(guess(second, 1), of_second)]
        for answer in (1, 0):  # all together may be an error, as if no class were there
            for i, position in enumerate(self._unknown):
                if position in self._answers:
                    other = guess(usual, answer)
                    other[i] = (1 - answer, *other[i][1:])
                    yield [guess(usual, answer), other]
        # MindSpore also takes sizes for unknown that cannot change, as those that a weight's fit.
        first_carrier = min(self._wanted.carried.values(), default=len(self._specs))
        own = [i for i in self._unknown if i < first_carrier]
        known = (shapes for shapes in self._wanted.known if own and len(shapes) == first_carrier)
        before = [[shapes[i] for i in own] for shapes in known]
        fitting = [shapes for shapes in before if all(map(_is_of, shapes, unknown))]
        carried = guess(usual, 0)[len(own) :], guess(second, 1)[len(own) :]
        of_own = itertools.chain(
            _with_others(fitting[-1], unknown[: len(own)]) if fitting else (),
            [fitting[-2:]] if len(fitting) > 1 else (),
        )
        for shapes in of_own:
            yield [[*one, *of_carriers] for one, of_carriers in zip(shapes, carried, strict=True)]
        others = {size for spec in self._specs for size in spec.shape if size > 1}
        for size in sorted(others)[:_MOST_OTHERS]:  # that of a loss's target is the only one that fits
            yield [guess(size, 0), guess(1, 1)]
            yield [guess(size, 0), guess(size, 1)]

    def _with_integers(self, shapes: Sequence[Shape], integers: Apart) -> list[Shape]:
        """These shapes, but for integers."""
        found = [*shapes]
        for position, i in enumerate(self._integers):
            found[i] = filled(CARRIER, integers.integer(position))
        return found

    def _sharing(self, shapes: Sequence[Shape]) -> tuple[Plan, Sequence[Shape]]:
        """The plan for these shapes, or for others where some are integers that have to have another sum (shares.py);
        and these."""
        while True:
            try:
                return self._at(shapes), shapes
            except NoShares as error:
                numbers, whole = error.whole
                carried = self._wanted.carried
                if not carried.keys() >= {*numbers}:
                    raise RuntimeError(*error.args) from None
                places = [self._unknown.index(carried[number]) for number in numbers]
                sizes = shared([shapes[i][0] for i in places], whole)
                others = {i: filled(CARRIER, size) for i, size in zip(places, sizes, strict=True)}
                if all(shapes[i] == shape for i, shape in others.items()):
                    raise RuntimeError(*error.args) from None
                self._alike.note_whole(self._size_at(i) for i in places)
                self._shares.update(places)
                shapes = [others.get(i, shape) for i, shape in enumerate(shapes)]

    def _at(self, shapes: Sequence[Shape]) -> Plan:
        """The plan for these shapes of the inputs that have unknown sizes, captured."""
        key = tuple(shapes)
        if key not in self._plans:
            self._plans[key] = self._made(key, is_quick=False)
            self._alike.add(self._sizes(key), self._plans[key])
        return self._plans[key]

    def _made(self, shapes: tuple[Shape, ...], is_quick: bool) -> Plan:
        specs = list(self._specs)
        for position, shape in zip(self._unknown, shapes, strict=True):
            specs[position] = replace(specs[position], shape=shape)
        try:
            return self._wanted.plan_for(specs, is_quick)
        except UnknownSize as error:
            error.shapes = shapes
            raise

    def _size_at(self, place: int) -> int:
        """The position of the first of an input's unknown sizes among all of them."""
        return sum(size < 0 for i in self._unknown[:place] for size in self._specs[i].shape)

    def _sizes(self, shapes: Sequence[Shape]) -> tuple[int, ...]:
        """Those of these shapes that are unknown."""
        pairs = zip(shapes, (self._specs[i].shape for i in self._unknown), strict=True)
        return tuple(size for shape, of in pairs for size, known in zip(shape, of, strict=True) if known < 0)

    def _shapes(self, sizes: Sequence[int]) -> list[Shape]:
        """The shapes with these unknown sizes."""
        left = iter(sizes)
        forms = (self._specs[i].shape for i in self._unknown)
        return [tuple(next(left) if size < 0 else size for size in form) for form in forms]

    def _at_run(self, shapes: Sequence[Shape]) -> Plan:
        """The same, but where what was captured tells it."""
        sizes = self._sizes(shapes)
        if tuple(shapes) in self._plans or (found := self._alike.plan(sizes)) is None:
            found = self._at(shapes)
            for others in self._alike.further(sizes):
                with contextlib.suppress(Exception):  # the function need not run with these
                    self._at(self._shapes(others))
        return found

    def program(self, kind: str, inputs: Sequence[Shape]) -> ProgramFile:
        """The program for inputs of these shapes, in the order of its groups."""
        family = _of_kind(self.plan, kind)
        order = [position for group in family.groups for position in group]
        by_position = dict(zip(order, inputs, strict=True))
        if kind == "backward":  # which takes all inputs of unknown sizes too
            [sources] = self.plan.sources
            by_position = {i: by_position[sources.index(("input", i))] for i in self._unknown}
        try:
            plan = self._at_run([by_position[i] for i in self._unknown])
        except UnknownSize as error:
            raise Refusal(f"{_NOT_COUNTED}{in_lines(error)}") from None
        try:
            _check(self.plan, plan)
        except Unlike as error:
            add_lines(error, self._wanted.where)
            raise
        return _of_kind(plan, kind)


_families: list[_Family] = []


class _Inferring(threading.local):
    is_any = False


_inferring = _Inferring()


def is_inferring() -> bool:
    """Whether this thread captures for a graph that is compiled, and runs perhaps. On a GPU the thread may be the one
    of MindSpore's that launches, and MindSpore's Parameters wait for that when they are asked."""
    return _inferring.is_any


def _with_others(own: Sequence[Shape], unknown: Sequence[Shape]) -> Iterator[Sequence[Sequence[Shape]]]:
    """These shapes beside some with other sizes where they are unknown: as many others as possible first, and small
    ones before large ones. Equal sizes stay equal."""
    pairs = [(size, of) for shape, form in zip(own, unknown, strict=True) for size, of in zip(shape, form, strict=True)]
    sizes = sorted({size for size, of in pairs if of < 0})
    for count in range(min(len(sizes), _MOST_FIXED + 1)):
        for fixed in itertools.combinations(sizes, count):
            varied = [size for size in sizes if size not in fixed]
            free = (size for size in itertools.count(_SMALL) if size not in sizes)
            small = dict(zip(varied, free, strict=False))
            large = {size: max(2 * size, size + 1) for size in varied}
            for others in (small, large):
                other = {size: others.get(size, size) for size in sizes}
                yield [
                    own,
                    [
                        tuple(other[size] if of < 0 else size for size, of in zip(shape, form, strict=True))
                        for shape, form in zip(own, unknown, strict=True)
                    ],
                ]


def _different(pairs: Iterable[Sequence[Sequence[Shape]]]) -> Iterator[Sequence[Sequence[Shape]]]:
    """Each of these once."""
    seen = set()
    for pair in pairs:
        key = tuple(map(tuple, pair))
        if key not in seen:
            seen.add(key)
            yield pair


def _check(own: Plan, plan: Plan) -> None:
    """Refuse a plan that does not fit into the graph."""
    # As text, a tree of True is another one than that of 1.
    gives_same = (own.results, json.dumps(own.tree)) == (plan.results, json.dumps(plan.tree)) and all(
        map(_is_result_like, own.forward.results[: len(own.results)], plan.forward.results)
    )
    fits = (
        gives_same
        and (own.sources, own.gradients) == (plan.sources, plan.gradients)
        and len(own.backward) == len(plan.backward)
        and {*plan.written} <= {*own.written}
        and all(map(_fits, [own.forward, *own.backward], [plan.forward, *plan.backward]))
    )
    if _without_values(own.tree) == _without_values(plan.tree) and json.dumps(own.tree) != json.dumps(plan.tree):
        raise Unlike(
            "a number or text that is returned follows from a size or an answer that is unknown or that data decides, "
            "and a graph is compiled for all of them: return a tensor, or what its `item()` gives"
        )
    if not fits:
        raise (OtherForm if gives_same else Unlike)(
            "which tensors pass through the program, or their ranks, follows from a size that is unknown or that data "
            "decides, and a graph is compiled for all sizes: PyNative mode takes it, and a graph takes known sizes"
        )


def _without_values(form: Any) -> Any:
    """The form of what a function gives (result_tree.py), whatever numbers and texts are in it."""
    if isinstance(form, list):
        return "value" if form[:1] == ["value"] else [*map(_without_values, form)]
    return form


def _is_of(shape: Shape, unknown: Shape) -> bool:
    return len(shape) == len(unknown) and all(b in (-1, a) for a, b in zip(shape, unknown, strict=True))


def _of_kind(plan: Plan, kind: str) -> ProgramFile:
    """With unknown sizes forward and backward are one program each (bridge/programs/split.py)."""
    return plan.forward if kind == "forward" else plan.backward[0]


def _common(first: ProgramFile, second: ProgramFile, path: str) -> ProgramFile:
    if [len(shape) for shape, _ in first.results] != [len(shape) for shape, _ in second.results]:
        return replace(first, path=path)  # which _check refuses
    results: list[Any] = [
        (tuple(a if a == b else -1 for a, b in zip(one, other, strict=True)), dtype)
        for (one, dtype), (other, _) in zip(first.results, second.results, strict=True)
    ]
    changes, draws = first.changes or second.changes, first.draws or second.draws
    return replace(first, path=path, results=results, changes=changes, draws=draws)


def _is_result_like(known: Any, own: Any) -> bool:
    """Whether a program's result is one of a family."""
    return (
        len(known[0]) == len(own[0])
        and known[1] == own[1]
        and all(a in (-1, b) for a, b in zip(known[0], own[0], strict=True))
    )


def _fits(family: ProgramFile, program: ProgramFile) -> bool:
    return (
        family.changes >= program.changes
        and family.draws >= program.draws
        and family.groups == program.groups
        and family.dtypes == program.dtypes
        and len(family.results) == len(program.results)
        and all(map(_is_result_like, family.results, program.results))
    )


def _infer(text: str, inputs: tuple[InferredSpec, ...]) -> tuple[InferredSpec, ...]:
    """The shapes of a family's results. What launches it is told of the program for these inputs."""
    path = Text(text).values[0]
    _, number, kind = path.split(" ")
    family = _families[int(number)]
    shapes = [shape for shape, _ in inputs]
    if any(size < 0 for shape in shapes for size in shape):
        program = _of_kind(family.plan, kind)
    else:
        _inferring.is_any = True
        try:
            program = family.program(kind, shapes)
        finally:
            _inferring.is_any = False
        key = ";".join(",".join(map(str, shape)) for shape in shapes)
        add = devices.load(SHARED["CPU"]).ms_ext_add_program
        add.argtypes, add.restype = [*[ctypes.c_char_p] * 3, ctypes.c_bool], None
        add(path.encode(), key.encode(), program.path.encode(), not is_told(program.path))
    return tuple((tuple(shape) or (1,), dtypes.TORCH_DTYPES[dtype]) for shape, dtype in program.results)


graph_shapes.further[SUFFIX] = _infer
