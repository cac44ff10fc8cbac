"""A function in graph mode: captured for the shapes, dtypes and constants at hand, one operator forward and one
backward."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import ops
from mindspore.ops.functional import depend
from torch._subclasses.fake_tensor import FakeTensor

from bridge import _mindspore, aten
from bridge.op import devices
from bridge.op.table import Device
from bridge.primitive import precision
from bridge.primitive.graph_calls import Call, GraphTensor, Item, Part, Read, add_lines, graph_call, users_lines
from bridge.primitive.kernel import one_at_a_time
from bridge.primitive.launch_errors import has_class
from bridge.programs import plan, result_tree, stand_ins, store, tree
from bridge.programs.after_others import Planned, PlannedCalls, in_modes, left_for
from bridge.programs.alike import named_integers
from bridge.programs.attributes import Attributes
from bridge.programs.calls import AsksForData, Refusal, in_line
from bridge.programs.capture import Spec
from bridge.programs.casting import Casting
from bridge.programs.choices import choices
from bridge.programs.configurations import Configuration, configuration_of
from bridge.programs.counts import CARRIER, NoSize, Uneven
from bridge.programs.data_sizes import Line, Sizes, UnknownSize
from bridge.programs.drawn_arrays import capture_again
from bridge.programs.folded import digest
from bridge.programs.graph_arguments import Arguments, spec_of
from bridge.programs.held import Changes
from bridge.programs.kept_elsewhere import is_own
from bridge.programs.kernel import count_kernel, program_call, program_results
from bridge.programs.later_calls import Captured, LaterCalls, do_the_same
from bridge.programs.modes import changed_before, note_differentiated, note_written
from bridge.programs.module_code import asks_whether_one, where_set
from bridge.programs.refusals import (
    PythonDraws,
    all_are_differentiated,
    changed_elsewhere,
    keeps_between_calls,
    no_python_draws,
    refuse_hooks,
    refuse_racing_gradients,
    refuse_surroundings,
    replaces_registered,
)
from bridge.programs.replaced import Replacement, replaced
from bridge.programs.size_numbers import SizeNumber
from bridge.programs.sizes import AllSizes, OtherForm, Unlike, for_all_sizes, is_family, is_inferring, trying
from bridge.programs.state import State, refuse_other
from bridge.programs.written_down import Written, write_down

# After so many captures it is likely that there is no end to them.
_MANY = 32

_NOTHING = ms.Tensor(np.zeros(0, np.bool_))

_LARGEST = 1 << 26  # bytes of what is the same in each call, of which a digest is made
_LEFT = (
    "{}: forward leaves something else there in each call, and a graph does not: it stays what the last call in "
    "PyNative mode left. Return it, or write it to a buffer"
)
_MAY_BE_ONE = (
    "{}: its code asks {}, and in a graph no two arguments are one tensor: if a call has one twice, it goes on as for "
    "two. Call it in the forward of a PyTorch module around it, or in a function of bridge.fuse"
)
_AS_COMPILED = (
    "the graph does what torch.compile does, which may have other last bits than PyNative mode: "
    "torch.compiler.is_compiling() is True, because without that the module asks for data"
)


def _carrier(shape: Any) -> Call:
    """The expression of what carries a size that data decides."""
    return Call(ops.stop_gradient, [Call(aten._reshape_from_tensor, [_NOTHING, shape])])


@dataclass(frozen=True)
class _Wanted:
    """What a plan is for.

    Args:
        arguments: those of the call.
        specs: those of the state, the arguments and what carries sizes that data decides.
        device: PyTorch's name of it.
        write_down: gives what tells the function and its arguments from others.
        unknown: the positions of inputs with sizes that only the run tells.
        numbers: those of the sizes that the last inputs carry (data_sizes.py).
        guessed: those of the sizes that have to fit (fits.py).
        both_ways: the lines of which the answers to questions are known to be such sizes; None if none is.
        casting: PyTorch's autocast around the call that is compiled.
        asked: one of these lines, which a capture without them has found.
        of_changed, least, are_late: see Sizes.
        has_integers: whether integers that Python asks for may be sizes. Where they need not, as those that a float
            follows from, there is one program for all of them.
        is_uniform: whether the programs have one form for all sizes (uniform.py); see has_one_form.
        is_count: whether the program gives further such sizes.
        counted: what is known of these; None if it is to find them.
        asks_otherwise: whether other answers may lead to sizes that no program has given yet.
        where: the line of the function that asks for the first size that data decides, for errors.
        is_quick: whether it is left out to look what other answers, or a next call, would lead to.
    """

    arguments: Arguments
    specs: list[Spec]
    device: str
    write_down: Callable[[], Written | None]
    unknown: tuple[int, ...]
    numbers: list[SizeNumber]
    guessed: list[SizeNumber]
    both_ways: list[Line] | None
    casting: Casting
    asked: Line | None = None
    of_changed: bool = False
    least: bool = False
    are_late: bool = False
    has_integers: bool = False
    is_uniform: bool = False
    is_count: bool = False
    counted: plan.Counted | None = None
    asks_otherwise: bool = False
    where: str = ""
    is_quick: bool = False

    @property
    def has_one_form(self) -> bool:
        """Whether the programs have one form for all sizes and answers."""
        return self.is_uniform or bool(self.answers)

    @property
    def first_size(self) -> int:
        """The position of the first input that carries such a size."""
        return len(self.specs) - len(self.numbers)

    @property
    def sizes(self) -> Sizes:
        """The sizes that data decides."""
        specs = self.specs[self.first_size :]
        known = {number: spec.shape[0] for number, spec in zip(self.numbers, specs, strict=True)}
        lines = None if self.both_ways is None else {*self.both_ways, *filter(None, [self.asked])}
        return Sizes(
            known,
            None,
            lines,
            of_changed=self.of_changed,
            least=self.least,
            are_late=self.are_late,
            has_integers=self.has_integers,
        )

    @property
    def answers(self) -> list[int]:
        """The positions of inputs that carry answers."""
        return [self.first_size + i for i, number in enumerate(self.numbers) if number.is_answer]

    @property
    def integers(self) -> list[int]:
        """The positions of inputs that carry integers that Python asks for."""
        return [self.first_size + i for i, number in enumerate(self.numbers) if number.is_integer]


class _AsksForInteger(Refusal):
    """Python asks for an integer that data decides, where it may not be a size."""


def _with_reason(asked: Refusal, error: Exception) -> Refusal:
    """The refusal, with what is in the way of a graph for all values."""
    why = str(error).partition("\n")[0]
    if why in str(asked):
        return asked
    why = why if isinstance(error, Refusal) else f"{type(error).__name__}: {why}"
    head, _, lines = str(asked).partition("\n\n")
    return type(asked)(f"{head}. A graph for each value is refused, too: {why}\n\n{lines}")


def _read(tensor: Any) -> Any:
    return Read(tensor) if isinstance(tensor, Part) else tensor


class GraphProgram:
    """What MindSpore's compiler calls for a program.

    Args:
        function, name, state: see Program.
        autocast: gives the context for the dtype that MindSpore asks for. It is told whether MindSpore casts for the
            operators of a list, and may refuse that.
        is_differentiable: see Program.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        state: State,
        autocast: Callable[[bool], Any],
        is_differentiable: bool = True,
    ) -> None:
        self.function = function
        self.name = name
        self.state = state
        self._refuse_lists = functools.partial(autocast, True)
        self.autocast = functools.partial(autocast, False)
        self.is_differentiable = is_differentiable
        self._configurations: list[Configuration] = []
        self._calls = PlannedCalls()  # if there is no configuration that has them
        self._taken: dict[str, dict[int, bool] | None] = {}  # what plans take (plan.Origin), by their keys
        self._shapes: list[list[Any]] = []  # of calls whose sizes were known: the last two that differ
        self._said: set[str] = set()

    @property
    def modules(self) -> Sequence[torch.nn.Module]:
        """Those that it runs."""
        return self.state.modules

    @functools.cached_property
    def call(self) -> Any:
        """Called with the Parameters of the state, the arguments and the keyword arguments."""
        return graph_call(self.name, self.plan_in_graph)

    def plan_in_graph(
        self,
        weights: list[GraphTensor],
        args: list[Any],
        kwargs: dict[str, Any],
        product: Any = None,
        lines: str = "",
        again: Any = None,
    ) -> Any:
        """The expression of a call (bridge/primitive/graph_calls.py).

        A call that mixed precision may reach is planned again.

        Args:
            product, lines: see Operator.plan_in_graph.
            again: the graph_call of `args` and `kwargs` that plans it again, where there are no weights.
        """
        if product is None and _mindspore.auto_levels().exist():
            return precision.with_product(again or self.call, 2 if again else 3, users_lines())
        try:
            if product is not None and product.dtype != ms.float32:
                self._refuse_lists()
            # A capture replaces functions of PyTorch's, for all threads. It may have gradients in any mode.
            with one_at_a_time, torch.inference_mode(False):
                return self._planned(weights, args, kwargs)
        except Exception as error:
            if isinstance(error, result_tree.NotReturned):
                error.advise(self.name)
            add_lines(error, lines)
            raise

    def _planned(self, weights: list[GraphTensor], args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.state.follow_between_calls()
        refuse_surroundings(choices(devices.target() == "GPU"), bool(self.state.modules))
        for module in self.state.modules:
            refuse_hooks(module)
        for parameter, tensor in zip(self.state.parameters.values(), self.state.tensors, strict=True):
            refuse_other(parameter, tensor)
        self.state.stay()
        for module in self.state.modules:
            if name := changed_before(module):
                raise Refusal(changed_elsewhere(self.name, name))
        arguments = Arguments(args, kwargs)
        if arguments.may_be_one():
            for question in filter(None, map(asks_whether_one, self.state.modules)):
                self._say(_MAY_BE_ONE.format(self.name, question))
        specs = [*map(spec_of, weights, self.state.are_trained())]
        specs += arguments.specs(self.is_differentiable)
        device = devices.own_kernels()
        if device == "GPU":
            refuse_racing_gradients(self.state.tensors)
        torch_device = devices.torch_name(device)
        writes_down = self._writing_down(arguments, device)
        casting = Casting.now(torch_device.partition(":")[0])
        wanted = _Wanted(arguments, specs, torch_device, writes_down, (), [], [], None, casting)
        inputs = [*weights, *arguments.tensors]

        def found_as(wanted: _Wanted) -> tuple[plan.Plan, list[Any]]:
            try:
                return self._found_with_answers(wanted, inputs, device)
            except Uneven as error:
                if not error.is_of_least:
                    raise
                return self._found_with_answers(replace(wanted, least=True), inputs, device)

        def find() -> tuple[plan.Plan, list[Any]]:
            try:
                return found_as(wanted)
            except _AsksForInteger:
                with contextlib.suppress(Exception):
                    return found_as(replace(wanted, are_late=True, has_integers=False))
                return found_as(replace(wanted, has_integers=True))

        found, tensors = capture_again(find)
        note_written(self.state.tensors[i] for i in found.written if i < len(self.state.tensors))
        self._note_gradients(found)
        # What it writes to has to be the Parameter itself.
        inputs = [tensor if i in found.written else _read(tensor) for i, tensor in enumerate(tensors)]
        results = program_results(self.name, found, device, self.is_differentiable, inputs, len(weights))
        value = result_tree.expression(found.tree, results)
        return value if result_tree.has_tensors(found.tree) else Call(depend, [value, results[0]])

    def _note_gradients(self, found: plan.Plan) -> None:
        """For optimizers: which tensors of the state may get gradients. What a program that MindSpore differentiates
        leaves out may get some of operators beside it."""
        tensors = self.state.tensors
        if self.is_differentiable:
            note_differentiated(tensors, [True] * len(tensors))
            return
        left_out = () if is_family(found.forward) else found.left_out
        asked = self.state.asked
        note_differentiated((tensors[position] for position in asked), [position not in left_out for position in asked])

    def _found_with_answers(self, wanted: _Wanted, tensors: list[Any], device: Device) -> tuple[plan.Plan, list[Any]]:
        """See _found_with_sizes. Where the program asks for data, the answers count as sizes."""
        with_answers = replace(wanted, both_ways=[])
        asked: Refusal | None = None
        if not store.has(self._key(replace(with_answers, is_count=True))):
            try:
                return self._found_with_sizes(wanted, tensors, device)
            except (AsksForData, Changes) as error:
                asked = error
        if isinstance(asked, AsksForData):
            with_answers = replace(with_answers, asked=asked.question)
        else:
            with_answers = replace(with_answers, of_changed=True)
        try:
            return self._found_with_sizes(with_answers, tensors, device)
        except Exception as error:
            if asked is None:
                raise
            raise _with_reason(asked, error) from None

    def _found_with_sizes(self, wanted: _Wanted, tensors: list[Any], device: Device) -> tuple[plan.Plan, list[Any]]:
        """The plan for inputs like these tensors and the carriers of sizes that data decides, and all of these.

        A count that the function only returns counts as a size first, and what it gives then follows from a size.
        """
        try:
            return self._found_by_counts(wanted, tensors, device)
        except Unlike as error:
            try:
                return self._found_by_counts(replace(wanted, are_late=True), tensors, device)
            except Exception:
                raise error from None

    def _found_by_counts(self, wanted: _Wanted, tensors: list[Any], device: Device) -> tuple[plan.Plan, list[Any]]:
        while True:
            specs, numbers = wanted.specs, wanted.numbers
            wanted = replace(wanted, unknown=tuple(i for i, spec in enumerate(specs) if -1 in spec.shape))
            try:
                return self._found(wanted), tensors
            except UnknownSize as asked:
                if asked.is_integer and not wanted.has_integers:
                    raise _AsksForInteger from None
                counted = self._counted(wanted, asked)
            except Unlike as error:
                add_lines(error, wanted.where)
                raise
            new, lines, asks_otherwise, where = plan.Counted.read(counted.tree)
            wanted = replace(
                wanted,
                both_ways=lines and [(file, line) for file, line in lines],
                asks_otherwise=wanted.asks_otherwise or asks_otherwise,
                where=wanted.where or where,
            )
            if not counted.results:
                wanted = replace(wanted, guessed=[*wanted.guessed, *new])
                continue
            kernel = count_kernel(self.name, counted, device)
            call = program_call(kernel, counted.forward, [_read(tensor) for tensor in tensors])
            tensors = [*tensors, *(_carrier(Item(call, i)) for i in range(len(counted.results)))]
            specs = [*specs, *[Spec(CARRIER, torch.bool)] * len(counted.results)]
            wanted = replace(wanted, specs=specs, numbers=[*numbers, *new])

    def _writing_down(self, arguments: Arguments, device: str) -> Callable[[], Written | None]:
        """What writes down the function and these arguments. On a GPU, MindSpore's launching thread captures programs
        of unknown sizes, and there a Parameter's name and a tensor's data wait for it: they are written down now."""

        def write() -> Written | None:
            return write_down((self.function, arguments.known), self.state.tensors)

        if device != "GPU":
            return write
        written = write()
        return lambda: written

    def _counted(self, wanted: _Wanted, asked: UnknownSize) -> plan.Plan:
        """The plan of the program that gives the sizes that are asked for."""
        try:
            return self._found(replace(wanted, is_count=True), asked.shapes)
        except NoSize as error:
            if error.question is None or wanted.both_ways is not None:
                raise asked from None
            raise

    def _found(self, wanted: _Wanted, first: Any = None) -> plan.Plan:
        """The plan, which is for all sizes where some are unknown.

        Args:
            first: shapes of the inputs that have unknown sizes, to be tried first.
        """
        if wanted.unknown:
            try:
                return self._for_all_sizes(wanted, first)
            except OtherForm:
                if wanted.is_count or wanted.is_uniform:
                    raise
                return self._for_all_sizes(replace(wanted, is_uniform=True), first)
        found = self._plan(wanted)
        shapes = [spec.shape for spec in wanted.specs]
        self._shapes = [*(other for other in self._shapes[-1:] if other != shapes), shapes]
        return found

    def _for_all_sizes(self, wanted: _Wanted, first: Any) -> plan.Plan:
        in_mode = _in_mode(self.state.modules)
        captures = itertools.count(1)
        counted: plan.Counted | None = None
        looked_at: set[tuple[Any, ...]] = set()

        def plan_for(specs: list[Spec], is_quick: bool) -> plan.Plan:
            nonlocal counted
            answers = tuple(specs[i].shape for i in wanted.answers)
            if wanted.is_count and not is_quick:
                # What other answers lead to does not follow from sizes, mostly; and the program checks its sizes.
                is_quick = answers in looked_at
            if wanted.numbers and next(captures) == _MANY:
                warnings.warn(
                    f"{self.name} has been captured for {_MANY} combinations of sizes that depend on data. Each "
                    "took a while, and is kept: PyNative mode captures nothing",
                    stacklevel=1,
                )
            own = replace(wanted, specs=specs, counted=counted, is_quick=is_quick)
            found: plan.Plan = in_mode(lambda: self._plan(own))
            if wanted.is_count and found.results:
                counted = plan.Counted.read(found.tree)
            if not is_quick:
                looked_at.add(answers)
            return found

        return for_all_sizes(
            AllSizes(
                specs=wanted.specs,
                plan_for=plan_for,
                known=self._shapes,
                answers=wanted.answers,
                integers=wanted.integers,
                carried={number: wanted.first_size + i for i, number in enumerate(wanted.numbers)},
                is_uniform=wanted.has_one_form,
                is_count=wanted.is_count,
                asks_otherwise=wanted.asks_otherwise,
                first=first,
                named=self._named(wanted.specs),
                where=wanted.where,
            )
        )

    def _named(self, specs: Sequence[Spec]) -> frozenset[int]:
        """The numbers that the function may compare a size with."""
        parts = [part for module in self.state.modules for part in module.modules()]
        kinds = {kind.__module__ for owner in (*parts, *self.state.cells) for kind in type(owner).__mro__}
        files = {getattr(sys.modules.get(name), "__file__", None) for name in kinds}
        files.add(getattr(getattr(self.function, "__code__", None), "co_filename", None))
        own = (file for file in files if file and is_own(file))
        return named_integers(own, [*parts, *self.state.cells], (size for spec in specs for size in spec.shape))

    def _plan(self, wanted: _Wanted) -> plan.Plan:
        """The plan for inputs like these: the one kept, or a new one."""
        taken: dict[int, bool] | None = None

        def captured() -> Captured:
            nonlocal taken
            found = self._captured_alike(wanted)
            taken = found[1].taken
            return found

        before = Attributes(self.state.modules)
        key = self._key(wanted)
        found = store.plan(key, captured)
        if found.remembers and taken is None:
            self._remember(found.remembers, wanted)
        if self.state.set_apart(found.replaced):  # what had their memory is another tensor now
            device = devices.own_kernels()
            return self._plan(replace(wanted, write_down=self._writing_down(wanted.arguments, device)))
        for name in [] if wanted.is_count else found.left:
            self._say(_LEFT.format(name))
        if key is not None:
            taken = self._taken[key.name] = self._taken.get(key.name) if taken is None else taken
        self._configurations = [configuration_of(module) for module in self.state.modules]
        call = None
        if not (wanted.is_count or wanted.is_quick):
            call = Planned.of(self, wanted, key.name if key else "", found)
        try:
            if call is not None:
                self._refuse_after_others(call)
        except BaseException:
            before.restore()
            raise
        finally:
            for configuration in self._configurations:
                configuration.note_taken(taken if taken is not None or found.finds_tensors else {})
        if call is not None:
            for configuration in self._configurations:
                configuration.add(call)
            if not self._configurations:
                self._calls.add(replace(call, settings=self._named_number()))
        return found

    def _say(self, words: str) -> None:
        """Warn of something once."""
        if words not in self._said:
            warnings.warn(words, stacklevel=1)
            self._said.add(words)

    def _key(self, wanted: _Wanted) -> store.Key | None:
        sizes = (
            wanted.are_late,
            wanted.has_integers,
            wanted.unknown,
            wanted.numbers,
            wanted.guessed,
            wanted.both_ways,
            wanted.is_uniform,
            wanted.is_count,
        )
        counted = wanted.counted and wanted.counted.numbers
        with self._casting(wanted):
            return store.key(
                wanted.write_down(),
                self.state.tensors,
                (wanted.specs, *sizes, counted, wanted.least, wanted.is_quick and not wanted.is_count),
                wanted.device,
            )

    @contextlib.contextmanager
    def _casting(self, wanted: _Wanted) -> Iterator[None]:
        """What casts in the call that is compiled, also where a later one is captured on another thread."""
        with wanted.casting.around(wanted.device.partition(":")[0]), self.autocast():
            yield

    def _captured_alike(self, wanted: _Wanted, remembers: bool = True) -> Captured:
        """The plan, if the next call has the same.

        Args:
            remembers: whether attributes may stay as the call leaves them.
        """
        if not wanted.is_count and store.has(self._key(replace(wanted, is_count=True))):
            raise UnknownSize
        before = Attributes(self.state.modules)
        named = self.state.named
        named_before = {} if named is None else named.now()
        of_state = set[str]()
        try:
            found = self._capture(wanted)
            origin = found[1]
            before.write_tables(origin.tables)
            kept = origin.kept
            kept.give_data_in(self.state.modules)
            in_globals = before.changed_globals()
            new = before.holding(origin.is_new)
            known = before.holding(lambda _: True) - new
            left = [name for name in before.changed(of_users=True) if name not in known]
            changed = kept.cached + before.changed() + kept.unknown + in_globals
            other = changed[0] if kept.cached else ""
            may_differ = kept.unknown or in_globals or not before.are_caches(origin.follows_from_state)
            # The program itself counts too.
            if changed and not other and may_differ and not (wanted.is_count or wanted.is_quick):
                of_state = before.holding(lambda one: isinstance(one, FakeTensor) and not origin.is_constant(one))
                before.give_data(origin.data_of)
                found[0].leaves, found[0].leaves_elsewhere = sorted({*changed} - {*in_globals}), sorted(in_globals)
                later = LaterCalls(self.state.modules, lambda: self._capture(wanted), found, before, changed)
                other = later.name_of_use(new, is_for_many=bool(wanted.unknown or wanted.numbers))
            kept.forget()
            if other:
                raise Refusal(self._keeps(other))
            if not (wanted.is_count or wanted.is_quick):
                if named is not None and (name := named.changed(named_before)):
                    if not do_the_same(self._capture(wanted), found):
                        raise Refusal(keeps_between_calls(name))
                    found[0].leaves_elsewhere.append(name)
                found[0].does = digest(origin.folded()) if origin.size <= _LARGEST else ""
        except BaseException:
            before.restore()
            raise
        if not remembers:
            found[0].remembers = []
        stays = found[0].remembers
        before.restore(besides=stays)
        found[0].left = [name for name in left if may_differ and name not in stays] + kept.unknown
        if of_state.isdisjoint(stays):
            return found
        # Whatever becomes of the state, the next call goes on with that.
        next_one = self._captured_alike(wanted, remembers=False)
        if not {*stays}.isdisjoint(next_one[0].leaves):  # what makes it is not remembered, as a count of calls
            before.restore()
            found[0].remembers = []
            return found
        next_one[0].leaves, next_one[0].remembers = found[0].leaves, stays
        return next_one

    def _remember(self, names: Sequence[str], wanted: _Wanted) -> None:
        """Have attributes with these names be as a call leaves them for its next ones."""
        before = Attributes(self.state.modules)
        left: Sequence[str] = []
        try:
            self.capture_leaving(wanted)
            left = names
        finally:
            before.restore(besides=left)

    def _keeps(self, attribute: str) -> str:
        """What an error says of an attribute by its path, with the line that sets it."""
        path, _, name = attribute.rpartition(".")
        parts = ((type(root).__name__, *part) for root in self.state.modules for part in root.named_modules())
        owner = next((part for root, own, part in parts if f"{root}.{own}".rstrip(".") == path), None)
        return keeps_between_calls(attribute) + in_line(owner and where_set(owner, name))

    def capture_leaving(self, wanted: _Wanted) -> Captured:
        """A new plan of a call, whose attributes stay as the call leaves them."""
        before = Attributes(self.state.modules)
        found, origin = self._capture(wanted)
        before.write_tables(origin.tables)
        origin.kept.give_data_in(self.state.modules)
        before.give_data(origin.data_of)
        origin.kept.forget()
        return found, origin

    def _refuse_after_others(self, call: Planned) -> None:
        """Raise a Refusal if a call and another one that a graph has do something else after one another."""
        known = [(configuration.calls, configuration.last_number) for configuration in self._configurations]
        for calls, settings in known or [(self._calls, self._named_number())]:
            for other in calls.others(call):
                if not store.are_apart(call.name, other.name):
                    name = left_for(other, replace(call, settings=settings))
                    if name is None:
                        continue
                    if name:
                        raise Refusal(self._keeps(name))
                    if other.settings == settings:  # else not all was compared
                        store.note_apart(call.name, other.name)
                calls.note_apart(call, other)

    def _named_number(self) -> int:
        return 0 if self.state.named is None else self.state.named.last_number

    def _capture(self, wanted: _Wanted) -> Captured:
        """A new plan. What asks for data may ask for none where PyTorch compiles it, as transformers 4 does."""
        own, is_asked = torch.compiler.is_compiling, False

        def is_compiling() -> bool:
            nonlocal is_asked
            is_asked = True
            return own()

        try:
            with replaced([Replacement(torch.compiler, "is_compiling", is_compiling)]):
                return self._capture_lending(wanted)
        except AsksForData as asked:
            if not is_asked:
                raise
            try:
                with replaced([Replacement(torch.compiler, "is_compiling", lambda: True)]):
                    found = self._capture_lending(wanted)
            except UnknownSize:
                raise
            except Exception:
                raise asked from None
            lines = "".join(f"\n{line}" for line in str(asked).splitlines()[1:])
            warnings.warn(f"{self.name}: {_AS_COMPILED}{lines}", stacklevel=1)
            return found

    def _capture_lending(self, wanted: _Wanted) -> Captured:
        try:
            found = self._captured(wanted)
        except UnknownSize:
            raise
        except RuntimeError:
            if not self.state.lend():
                raise
        else:
            if not found[0].no_gradient or not self.state.lend():
                return found
        return self._captured(wanted)  # a buffer that it puts another tensor in the place of is a copy now

    def _captured(self, wanted: _Wanted) -> Captured:
        before = Attributes(self.state.modules)
        try:
            try:
                return self._captured_from(before, wanted, but_checks=False)
            except PythonDraws:
                if "beartype" not in sys.modules:
                    raise
            before.restore()
            return self._captured_from(before, wanted, but_checks=True)
        except BaseException:
            before.restore()
            raise

    def _captured_from(self, before: Attributes, wanted: _Wanted, but_checks: bool) -> Captured:
        form: Any = None
        left_out: list[str] = []
        arguments, specs, device = wanted.arguments, wanted.specs, wanted.device
        differentiates_arguments = any(spec.requires_grad for spec in specs[len(self.state.tensors) :])

        def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
            nonlocal form
            before.take_back_registered()
            before.restore()  # a capture runs more than once where it has to find answers
            args, kwargs = arguments.with_tensors(tensors)
            results: list[torch.Tensor] = []
            left_out.clear()
            self.state.give_lent()
            try:
                copies = tree.Copies(args, kwargs)
                with self._casting(wanted), stand_ins.watched():
                    returned = self.function(*args, **kwargs)
                copies.warn_of_writes(self.name)
                form = result_tree.flatten(returned, results, left_out)
                results = self.state.before_write_back(results)
            finally:
                self.state.write_back()
            return results or [torch.zeros((), device=device)]  # MindSpore runs an operator for its results

        try:
            is_tried = (wanted.is_count or wanted.numbers or wanted.guessed) and not is_inferring()
            with no_python_draws(but_checks), trying() if is_tried else contextlib.nullcontext():
                inputs = run, self.state.tensors, specs, device, store.place(), wanted.unknown
                if wanted.is_count:
                    return plan.make_count(*inputs, wanted.sizes, wanted.guessed, wanted.counted, wanted.is_quick)
                sizes = wanted.sizes, wanted.guessed, wanted.has_one_form
                found, origin = plan.make(*inputs, *sizes)
                modes = before.take_modes()  # it sets them itself, as `self.backbone.eval()` does
                if modes and plan.make(*inputs, *sizes)[0] != found:
                    raise Refusal(replaces_registered(next(iter(modes))))
                found.modes = modes
            if others := before.take_back_registered():
                raise Refusal(replaces_registered(others[0]))
        except RuntimeError as error:
            if "a leaf Variable that requires grad" not in str(error):
                if "one of the arguments requires grad" in str(error) and differentiates_arguments:
                    error.args = (all_are_differentiated(str(error)),)
                raise
            raise Refusal(f"{self.name} writes to a parameter or an input, which a graph must not: {error}") from None
        finally:
            before.take_back_registered()
            before.give_back_modes()
        first = len(self.state.tensors)
        written = next((position for position in found.written if position >= first), None)
        if written is not None:
            which = arguments.path(written - first)
            raise Refusal(f"{self.name} writes to its input {which}, which a graph must not: give it a copy")
        for buffer, position in self.state.tied:
            if position in found.written or specs[position].requires_grad:
                other = [*self.state.parameters][position]
                raise Refusal(
                    f"the buffer '{buffer.name}' becomes one memory with '{other}', which changes, and a graph keeps "
                    f"two: assign a clone{buffer.where_set()}"
                )
        found.tree, found.left_out, found.replaced = form, self.state.left_out, self.state.replaced
        if found.no_gradient and differentiates_arguments and not has_class(found.no_gradient):
            found.no_gradient = all_are_differentiated(found.no_gradient)
        for what in left_out:
            warnings.warn(f"{self.name}: {what}", stacklevel=1)
        return found, origin


def _in_mode(roots: Sequence[torch.nn.Module]) -> Callable[[Callable[[], Any]], Any]:
    """Runs something while modules and their parts train, or do not, as they do now."""
    parts = [part for root in roots for part in root.modules()]
    wanted = [part.training for part in parts]

    def run(call: Callable[[], Any]) -> Any:
        with in_modes(parts, wanted):
            return call()

    return run
