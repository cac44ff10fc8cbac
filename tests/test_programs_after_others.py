"""Modules that keep something in attributes: what a call leaves there, others must not read in a graph."""

from __future__ import annotations

import copy
import functools
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge.programs import plan
from shared import on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs")]


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2))
        self.factor: Any = 1.0
        self.start()

    def start(self) -> None:
        pass

    def keep(self, x: torch.Tensor) -> None:
        raise NotImplementedError

    def forward(self, x: torch.Tensor, *_: Any) -> torch.Tensor:
        self.keep(x)
        return x * self.w * self.factor


class ByMode(Scaled):
    def keep(self, x: torch.Tensor) -> None:
        if self.training:
            self.factor = 2.0


class ByModeATensor(Scaled):
    def start(self) -> None:
        self.factor = torch.ones(2, device=torch_device())

    def keep(self, x: torch.Tensor) -> None:
        if self.training:
            self.factor = x.detach().mean(0)


class BySize(Scaled):
    def keep(self, x: torch.Tensor) -> None:
        if len(x) > 3:
            self.factor = 2.0


class ByData(Scaled):
    def keep(self, x: torch.Tensor) -> None:
        if x.sum() > 0:
            self.factor = 2.0


class Longest(Scaled):
    def keep(self, x: torch.Tensor) -> None:
        self.factor = max(self.factor, float(len(x)))


class LongestAsInt(Scaled):
    def start(self) -> None:
        self.factor = 0

    def keep(self, x: torch.Tensor) -> None:
        self.factor = max(self.factor, len(x))


class Order(Scaled):
    def start(self) -> None:
        self.ids: dict[int, int] = {}

    def keep(self, x: torch.Tensor) -> None:
        self.factor = 1 + self.ids.setdefault(len(x), len(self.ids))


class InASet(Scaled):
    def start(self) -> None:
        self.lengths: set[int] = set()

    def keep(self, x: torch.Tensor) -> None:
        self.lengths.add(len(x))
        self.factor = len(self.lengths)


class InAnArray(Scaled):
    def start(self) -> None:
        self.longest = np.zeros(1)

    def keep(self, x: torch.Tensor) -> None:
        self.longest[0] = max(self.longest[0], len(x))
        self.factor = float(self.longest[0])


def ones(rows: int) -> ms.Tensor:
    return ms.Tensor(np.ones((rows, 2), np.float32))


def jitted(net: Any) -> Callable[..., Any]:
    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    return call


def check(call: Callable[..., Any], reference: Scaled, rows: int) -> None:
    """A call gives PyTorch's bits."""
    expected = reference(on_device(np.ones((rows, 2), np.float32)))
    assert call(ones(rows)).asnumpy().tobytes() == expected.detach().cpu().numpy().tobytes()


def check_training_is_refused_after_evaluation(module: Scaled, attribute: str) -> None:
    net = bridge.cell(module)
    call = jitted(net)
    net.set_train(False)
    call(ones(3))
    net.set_train()
    with pytest.raises(RuntimeError, match=rf"\.{attribute} changes in a call"):
        call(ones(3))


@pytest.mark.parametrize("make", [Longest, LongestAsInt, BySize, InASet, InAnArray])
def test_a_call_of_another_size_reads_what_one_leaves(make: Callable[[], Scaled]) -> None:
    for _ in range(2):  # the second Cell has the programs that the first one kept
        call = jitted(bridge.cell(make()))
        call(ones(3))
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"(?s)is used by the next one.*, in keep\n +self\.factor = "):
                call(ones(5))
        call(ones(3))


@pytest.mark.parametrize("make", [ByMode, ByModeATensor])
def test_a_call_in_another_mode_reads_what_one_leaves(make: Callable[[], Scaled]) -> None:
    check_training_is_refused_after_evaluation(make(), "factor")


def test_another_answer_of_data_reads_what_one_leaves() -> None:
    with pytest.raises(RuntimeError, match=r"\.factor changes in a call"):
        jitted(bridge.cell(ByData()))(ones(3))


def test_another_program_reads_what_one_leaves() -> None:
    net = bridge.cell(Longest())
    jitted(net)(ones(3))
    with pytest.raises(RuntimeError, match=r"\.factor changes in a call"):
        jitted(bridge.value_and_grad(lambda x: net(x).sum()))(ones(5))


class Tables(Scaled):
    """They follow from the size alone, and grow."""

    def start(self) -> None:
        self.table = torch.zeros(0, 1)
        self.all: dict[int, torch.Tensor] = {}

    def keep(self, x: torch.Tensor) -> None:
        if len(x) > len(self.table):
            self.table = torch.arange(len(x), device=x.device)[:, None] * 0.5
        if len(x) not in self.all:
            self.all[len(x)] = torch.full((2,), float(len(x)), device=x.device)
        self.factor = self.table[: len(x)] + self.all[len(x)]


class NoticesNothing(Scaled):
    def keep(self, x: torch.Tensor) -> None:
        self.last_length = len(x)


@pytest.mark.parametrize("make", [Tables, NoticesNothing, Order])
def test_what_others_do_not_read_stays_allowed(make: Callable[[], Scaled]) -> None:
    module = make()
    reference = copy.deepcopy(module).to(torch_device())
    call = jitted(bridge.cell(module))
    for rows in (3, 5, 4, 3, 5):
        check(call, reference, rows)


class Cooling(Scaled):
    def keep(self, x: torch.Tensor) -> None:
        if self.training:
            self.factor = self.factor * 0.5


class Counting(Scaled):
    """What it counts makes no difference, now or later."""

    def start(self) -> None:
        self.calls = 0
        self.sizes: list[int] = []

    def keep(self, x: torch.Tensor) -> None:
        self.calls += 1
        self.sizes.append(len(x))


class Warm(Scaled):
    def start(self) -> None:
        self.calls = 0

    def keep(self, x: torch.Tensor) -> None:
        if self.training:
            self.calls += 1
        self.factor = 2.0 if self.calls > 3 else 1.0


def run(make: Callable[[], Scaled], steps: Sequence[str]) -> int:
    """Compare a module with PyTorch's in steps: a call in PyNative mode that trains, a graph that does not, or another
    value that somebody gives. Gives how many plans were made."""
    module = make()
    reference = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    call = jitted(net)
    own = plan.make
    with pytest.MonkeyPatch.context() as patch:
        made = Mock(side_effect=own)
        patch.setattr(plan, "make", made)
        for step in steps:
            if step == "set":
                module.factor = reference.factor = 9.0
                continue
            net.set_train(step == "train")
            reference.train(step == "train")
            check(net if step == "train" else call, reference, 3)
        return made.call_count


def test_a_graph_follows_what_pynative_mode_changes() -> None:
    run(Cooling, ["graph", "train", "graph", "graph", "train", "train", "graph", "set", "graph", "train", "graph"])


class BySizeInEvaluation(Scaled):
    def start(self) -> None:
        self.calls = 1

    def keep(self, x: torch.Tensor) -> None:
        if self.training:
            self.calls += 1
        self.factor = float(self.calls) if len(x) > 4 and not self.training else 1.0


def test_each_graph_follows_what_pynative_mode_changes() -> None:
    module = BySizeInEvaluation()
    reference = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    call = jitted(net)
    for rows, training in ((5, False), (3, False), (3, True), (3, False), (5, False), (5, True), (5, False)):
        net.set_train(training)
        reference.train(training)
        check(net if training else call, reference, rows)


def test_a_graph_follows_what_counts_later_only() -> None:
    run(Warm, ["graph", *["train"] * 2, "graph", *["train"] * 2, "graph"])


def test_what_graphs_do_not_read_costs_few_captures() -> None:
    few = run(Counting, ["graph", *["train", "graph"] * 2])
    assert run(Counting, ["graph", *["train", "graph"] * 12]) <= few


SEEN = {"longest": 0}
TABLES: dict[str, Any] = {}
longest = 0


class LongestInATable(Scaled):
    def keep(self, x: torch.Tensor) -> None:
        SEEN["longest"] = max(SEEN["longest"], len(x))
        self.factor = SEEN["longest"]


class LongestInAFile(Scaled):
    def keep(self, x: torch.Tensor) -> None:
        global longest
        longest = max(longest, len(x))
        self.factor = longest


class LongestInAClass(Scaled):
    longest = 0

    def keep(self, x: torch.Tensor) -> None:
        kind = type(self)
        kind.longest = max(kind.longest, len(x))
        self.factor = kind.longest


def around_a_function() -> Scaled:
    longest = 0

    class AroundAFunction(Scaled):
        def keep(self, x: torch.Tensor) -> None:
            nonlocal longest
            longest = max(longest, len(x))
            self.factor = longest

    return AroundAFunction()


@pytest.fixture
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SEEN, "longest", 0)
    monkeypatch.setattr(sys.modules[__name__], "longest", 0)
    monkeypatch.setattr(LongestInAClass, "longest", 0)
    TABLES.clear()


@pytest.mark.usefixtures("nothing_seen")
@pytest.mark.parametrize("make", [LongestInATable, LongestInAFile, LongestInAClass, around_a_function])
def test_a_call_of_another_size_reads_what_one_leaves_elsewhere(make: Callable[[], Scaled]) -> None:
    call = jitted(bridge.cell(make()))
    call(ones(3))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"(longest|SEEN) changes in a call"):
            call(ones(5))
    call(ones(3))


@pytest.mark.usefixtures("nothing_seen")
def test_a_function_of_another_size_reads_what_one_leaves_in_its_file() -> None:
    def scaled(x: ms.Tensor) -> ms.Tensor:
        SEEN["longest"] = max(SEEN["longest"], len(x))
        return bridge.aten.mul(x, SEEN["longest"])

    call = jitted(bridge.fuse(scaled))
    call(ones(3))
    with pytest.raises(RuntimeError, match=r"SEEN changes in a call"):
        call(ones(5))


class TablesElsewhere(Scaled):
    """They follow from the size alone, and grow."""

    def keep(self, x: torch.Tensor) -> None:
        if len(x) > TABLES.get("length", 0):
            TABLES["length"] = len(x)
            TABLES["table"] = torch.arange(len(x), device=x.device)[:, None] * 0.5
        self.factor = TABLES["table"][: len(x)]


class CountsElsewhere(Scaled):
    def keep(self, x: torch.Tensor) -> None:
        SEEN["longest"] += 1


@pytest.mark.usefixtures("nothing_seen")
@pytest.mark.parametrize("make", [TablesElsewhere, CountsElsewhere])
def test_what_others_do_not_read_elsewhere_stays_allowed(make: Callable[[], Scaled]) -> None:
    for _ in range(2):  # the second Cell has the programs that the first one kept
        module = make()
        reference = copy.deepcopy(module).to(torch_device())
        call = jitted(bridge.cell(module))
        for rows in (3, 5, 4, 3, 5, 7):
            check(call, reference, rows)


class KeepsTheLast(Scaled):
    """As a module keeps its last attention for somebody to look at."""

    last: Any = None

    def keep(self, x: torch.Tensor) -> None:
        self.last = x.detach() * 2
        self.factor = self.last.mean()


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Mock:
    counting = Mock(side_effect=plan.capture)
    monkeypatch.setattr(plan, "capture", counting)
    return counting


def test_what_no_call_reads_costs_one_capture_more(captures: Mock) -> None:
    module = KeepsTheLast()
    net = bridge.cell(module)
    call, reference = jitted(net), copy.deepcopy(module).to(torch_device())
    for kinds, (rows, training) in enumerate([(3, True), (5, True), (3, False), (4, False)], 1):
        net.set_train(training)
        check(call, reference, rows)
        assert captures.call_count <= 2 * kinds


def asks_for_its_class(x: torch.Tensor, last: Any) -> torch.Tensor:
    return x + last if isinstance(last, torch.Tensor) else x


def asks_whether_it_is_none(x: torch.Tensor, last: Any) -> torch.Tensor:
    return x if last is None else x * 2


def asks_whether_it_is_true(x: torch.Tensor, last: Any) -> torch.Tensor:
    return x if last is not True else x * 2


def tries(x: torch.Tensor, last: Any) -> torch.Tensor:
    try:
        return x + last.sum()
    except Exception:
        return x


def computes(x: torch.Tensor, last: Any) -> torch.Tensor:
    return torch.add(x, last or 0)


def writes_as_text(x: torch.Tensor, last: Any) -> torch.Tensor:
    return x * len(f"{last}"[:4])


@pytest.mark.parametrize(
    ("read", "left"),
    [
        (asks_for_its_class, 0),
        (asks_whether_it_is_none, 0),
        (asks_whether_it_is_true, True),
        (tries, 0),
        (computes, 5),
        (writes_as_text, 0),
    ],
)
def test_what_another_call_reads_in_some_way(read: Any, left: Any) -> None:
    class Reads(Scaled):
        last: Any = None

        def keep(self, x: torch.Tensor) -> None:
            if self.training:
                self.last = left or x.detach().mean()
            self.factor = 1.0 if self.training else read(x, self.last)

    check_training_is_refused_after_evaluation(Reads(), "last")


class StopsTraining(Scaled):
    """One of its parts, where data says so."""

    def start(self) -> None:
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, *_: Any) -> torch.Tensor:
        if x.sum() > 0:
            self.drop.eval()
        return self.drop(x * self.w)


def test_another_answer_of_data_reads_the_mode_that_one_leaves() -> None:
    with pytest.raises(RuntimeError, match=r"StopsTraining\.drop\.training changes in a call"):
        jitted(bridge.cell(StopsTraining()))(ones(3))


class NeverTrainsAPart(StopsTraining):
    def forward(self, x: torch.Tensor, *_: Any) -> torch.Tensor:
        self.drop.eval()
        return self.drop(x * self.w) if x.sum() > 0 else x


def test_a_mode_that_all_calls_set_stays_allowed() -> None:
    module = NeverTrainsAPart()
    call, reference = jitted(bridge.cell(module)), copy.deepcopy(module).to(torch_device())
    for rows in (3, 5, 3):
        check(call, reference, rows)


class RemembersANumber(Scaled):
    def start(self) -> None:
        self.first: Any = None
        self.scale = 2.0

    def keep(self, x: torch.Tensor) -> None:
        if self.first is None:
            self.first = self.scale
        self.factor = self.scale / self.first


class RemembersATensor(RemembersANumber):
    """It follows from a setting."""

    def keep(self, x: torch.Tensor) -> None:
        if self.first is None:
            self.first = torch.arange(2.0, device=x.device) * self.scale
        self.factor = self.first * self.scale


class RemembersABuffer(RemembersANumber):
    def start(self) -> None:
        super().start()
        self.register_buffer("buffer", torch.ones(2, device=torch_device()))
        self.anchor: Any = None

    def keep(self, x: torch.Tensor) -> None:
        if self.anchor is None:
            self.anchor = self.buffer.clone() * self.scale  # type: ignore[operator]
        self.factor = self.anchor

    def change(self) -> None:
        with torch.no_grad():
            self.buffer.mul_(3)  # type: ignore[operator]


class RemembersInTheFirstCall(RemembersABuffer):
    """It counts its calls, and a graph does not: each computes that again."""

    def start(self) -> None:
        super().start()
        self.calls = 0

    def keep(self, x: torch.Tensor) -> None:
        if self.calls == 0:
            self.anchor = self.buffer.clone()  # type: ignore[operator]
        self.calls += 1
        self.factor = self.anchor


class Shifts(Scaled):
    """It reads what it has left two calls before."""

    def start(self) -> None:
        self.last: Any = None
        self.one_before: Any = None

    def keep(self, x: torch.Tensor) -> None:
        self.factor = 1.0 if self.one_before is None else 10.0
        self.one_before, self.last = self.last, x.detach().mean()


def test_what_is_left_two_calls_before_is_no_use_in_between() -> None:
    with pytest.raises(RuntimeError, match=r"changes in a call"):
        jitted(bridge.cell(Shifts()))(ones(3))


def test_what_the_first_of_counted_calls_computes_is_computed_again() -> None:
    module = RemembersInTheFirstCall()
    reference = copy.deepcopy(module).to(torch_device())
    call = jitted(bridge.cell(module))
    for rows in (3, 3, 5):
        check(call, reference, rows)


class RemembersAProperty(RemembersANumber):
    @functools.cached_property
    def twice(self) -> float:
        return self.scale * 2

    def keep(self, x: torch.Tensor) -> None:
        self.factor = self.twice + self.scale


@pytest.mark.parametrize("make", [RemembersANumber, RemembersATensor, RemembersABuffer, RemembersAProperty])
def test_later_calls_go_on_with_what_the_first_one_remembers(make: Callable[[], RemembersANumber]) -> None:
    for _ in range(2):  # the second Cell has the programs that the first one kept
        module = make()
        reference = copy.deepcopy(module).to(torch_device())
        call = jitted(bridge.cell(module))
        for scale in (2.0, 2.0, 3.0, 2.0, 5.0):
            check(call, reference, 3)
            for one in (module, reference):
                one.scale = scale
                if isinstance(one, RemembersABuffer):
                    one.change()
        for one in (module, reference):
            one.first = None
        check(call, reference, 3)
        check(call, reference, 4)


def test_a_warning_names_a_number_that_a_graph_does_not_leave() -> None:
    with pytest.warns(UserWarning, match=r"NoticesNothing\.last_length: forward leaves something else there"):
        jitted(bridge.cell(NoticesNothing()))(ones(3))


class Calls:
    """Counts them."""

    number = 0
    milestones = frozenset([10, 20])


class Later(Scaled):
    """Its later calls do something else."""

    every = 5
    in_class = 0
    file: Path

    def start(self) -> None:
        self.calls, self.rate, self.pair = 0, 1.0, (0, "calls")
        self.state, self.list, self.object = {"calls": 0}, [0], Calls()
        self.log: list[int] = []
        self.last = deque([0] * 5, maxlen=5)
        self.array = np.zeros(1)

    def keep(self, x: torch.Tensor) -> None:
        self.factor = 2.0 if self.is_later() else 1.0

    def is_later(self) -> Any:
        self.calls += 1
        return self.calls % self.every == 0


class CountsAfter(Later):
    def is_later(self) -> bool:
        self.calls += 1
        return (self.calls - 1) % self.every == self.every - 1


@pytest.mark.parametrize("every", [2, 3, 4, 5, 7, 10, 100, 1000])
@pytest.mark.parametrize("make", [Later, CountsAfter])
def test_what_every_so_many_calls_do_is_refused(make: type[Later], every: int, captures: Mock) -> None:
    module = make()
    module.every = every
    with pytest.raises(RuntimeError, match=r"\.calls changes in a call"):
        jitted(bridge.cell(module))(ones(3))
    assert captures.call_count <= 4
    assert (module.calls, type(module.calls)) == (0, int)


def in_an_item(module: Later) -> Any:
    module.state["calls"] += 1
    return module.state["calls"] > 5


def in_a_list(module: Later) -> Any:
    module.list[0] += 1
    return module.list[0] in (7, 8)


def in_a_tuple(module: Later) -> Any:
    module.pair = (module.pair[0] + 1, "calls")
    return module.pair[0] == 6


def in_a_set(module: Later) -> Any:
    module.calls += 1
    return module.calls in {10, 20}


def in_a_set_that_has_a_name(module: Later) -> Any:
    module.calls += 1
    return module.calls in module.object.milestones


def in_an_object(module: Later) -> Any:
    module.object.number += 1
    return not module.object.number % 6


def in_a_number_that_falls(module: Later) -> Any:
    module.rate *= 0.9
    return module.rate < 0.5


def in_an_array(module: Later) -> Any:
    module.array += 1
    return module.array[0] >= 4


def in_a_length(module: Later) -> Any:
    module.log.append(1)
    return len(module.log) > 30


def in_a_queue(module: Later) -> Any:
    module.last.append(1)
    return module.last[0]


def in_a_table(module: Later) -> Any:
    SEEN["longest"] += 1
    return SEEN["longest"] % 6 == 0


def in_a_file(_: Later) -> Any:
    global longest
    longest += 1
    return longest >= 4


def in_a_class(module: Later) -> Any:
    type(module).in_class += 1
    return module.in_class >= 4


def at_a_function(_: Later) -> Any:
    at_a_function.calls += 1  # type: ignore[attr-defined]
    return at_a_function.calls >= 4  # type: ignore[attr-defined]


at_a_function.calls = 0  # type: ignore[attr-defined]


def is_due(calls: int, every: int) -> bool:
    return calls % every == 0


def by_a_function_that_others_call(module: Later) -> Any:
    module.calls += 1
    if is_due(module.calls, 100):
        module.log.append(module.calls)
    return is_due(module.calls, 6)


def after_a_while(module: Later) -> Any:
    module.calls += 1
    return module.calls > 1000 and module.calls % 7 == 0


def in_some_calls(module: Later) -> Any:
    module.calls += 1
    return 3 <= module.calls < 5


def by_a_loop(module: Later) -> Any:
    module.state["calls"] += 1
    for _ in range(module.state["calls"]):
        module.w * 2
    return False


def after_some_steps(module: Later) -> Any:
    module.calls += 1
    return next((step for step in (10, 20) if module.calls < step), 20) > 10


def by_the_greatest(module: Later) -> Any:
    module.calls += 1
    return max(module.calls - 50, 0)


@pytest.fixture
def nothing_counted(monkeypatch: pytest.MonkeyPatch, nothing_seen: None) -> None:
    monkeypatch.setattr(Later, "in_class", 0)
    monkeypatch.setattr(at_a_function, "calls", 0)


@pytest.mark.usefixtures("nothing_counted")
@pytest.mark.parametrize(
    ("is_later", "name"),
    [
        (in_an_item, r"\.state"),
        (in_a_list, r"\.list"),
        (in_a_tuple, r"\.pair"),
        (in_a_set, r"\.calls"),
        (in_a_set_that_has_a_name, r"\.calls"),
        (in_an_object, r"\.object"),
        (in_a_number_that_falls, r"\.rate"),
        (in_an_array, r"\.array"),
        (in_a_length, r"\.log"),
        (in_a_queue, r"\.last"),
        (in_a_table, r"\.SEEN"),
        (in_a_file, r"\.longest"),
        (in_a_class, r"\.in_class"),
        (at_a_function, r"at_a_function\.calls"),
        (by_a_function_that_others_call, r"\.calls"),
        (after_a_while, r"\.calls"),
        (in_some_calls, r"\.calls"),
        (by_a_loop, r"\.state"),
        (after_some_steps, r"\.calls"),
        (by_the_greatest, r"\.calls"),
    ],
)
def test_what_later_calls_do_is_refused(is_later: Callable[[Later], Any], name: str) -> None:
    make = type("Made", (Later,), {"is_later": is_later, "in_class": 0})
    with pytest.raises(RuntimeError, match=rf"{name} changes in a call"):
        jitted(bridge.cell(make()))(ones(3))


class Reports(Later):
    """What it counts decides about messages only. It keeps the number in all kinds of places."""

    def is_later(self) -> Any:
        self.calls += 1
        SEEN["longest"] += 1
        if self.calls % 100 == 0 or SEEN["longest"] > 50:
            REPORTS.append(f"call {self.calls}")
            TABLES[f"last {SEEN['longest']}"] = (SEEN["longest"], {SEEN["longest"]: self.calls})
            self.object.number = self.calls
        return False


REPORTS: list[str] = []


def plain(value: Any) -> bool:
    """Whether all numbers in it are Python's own."""
    items = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, tuple) else None
    return type(value) in (int, str) if items is None else all(map(plain, items))


@pytest.mark.usefixtures("nothing_counted")
def test_a_counter_for_messages_stays_allowed(captures: Mock) -> None:
    module = Reports()
    reference = copy.deepcopy(module).to(torch_device())
    call = jitted(bridge.cell(module))
    for _ in range(2):
        call(ones(3))
    assert captures.call_count <= 4
    assert REPORTS
    assert all(len(report) < 8 for report in REPORTS)  # no number that is far ahead
    assert (module.calls, type(module.calls), type(module.object.number)) == (0, int, int)
    assert plain(SEEN)
    assert plain(TABLES)
    assert SEEN["longest"] < 10
    check(call, reference, 3)


class Averages(Scaled):
    def start(self) -> None:
        self.count, self.mean = 0, torch.zeros(2, device=torch_device())

    def keep(self, x: torch.Tensor) -> None:
        self.count += 1
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        self.factor = self.mean


class CountsTwo(Later):
    """The first of its counters decides nothing."""

    def is_later(self) -> Any:
        self.calls += 1
        self.state["calls"] += 1
        if self.calls % 100 == 0:
            self.log.append(self.calls)
        return self.state["calls"] % 50 == 0


@pytest.mark.parametrize(("make", "name"), [(Averages, "mean"), (CountsTwo, "state")])
def test_a_refusal_names_what_is_used(make: Callable[[], Scaled], name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"\.{name} changes in a call"):
        jitted(bridge.cell(make()))(ones(3))


class CountsInATable(Scaled):
    def start(self) -> None:
        self.state = {"calls": 0}

    def keep(self, x: torch.Tensor) -> None:
        if self.training:
            self.state["calls"] += 1
        self.factor = 2.0 if self.state["calls"] > 3 else 1.0


def test_a_graph_follows_what_a_table_counts_later_only() -> None:
    run(CountsInATable, ["graph", *["train"] * 2, "graph", *["train"] * 2, "graph"])


class Saves(Later):
    def is_later(self) -> Any:
        self.calls += 1
        if self.calls % 100 == 0:
            torch.save(self.state_dict(), self.file)
        return False


def test_a_file_that_later_calls_save_stays_as_it_is(tmp_path: Path) -> None:
    module = Saves()
    module.file = tmp_path / "saved"
    module.file.write_text("before")
    with pytest.raises(RuntimeError, match=r"\.calls changes in a call"):
        jitted(bridge.cell(module))(ones(3))
    assert module.file.read_text() == "before"
