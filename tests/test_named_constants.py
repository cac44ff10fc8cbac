"""A graph follows what own code finds by name: bridge.fuse and bridge.value_and_grad give in a graph what they give in
PyNative mode, also after a change."""

from __future__ import annotations

import argparse
import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, ClassVar
from unittest.mock import Mock

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn

import bridge
from bridge import _mindspore, aten
from shared import data

pytestmark = [pytest.mark.usefixtures("own_programs")]


@dataclasses.dataclass
class Options:
    gamma: float = 1.0
    name: str = "sum"

    def weight(self) -> float:
        return self.gamma if self.name == "sum" else -self.gamma


class Factors:
    first = 1.0


@dataclasses.dataclass(slots=True)
class Slotted:
    """Has attributes that no dictionary holds, one by its class, and one that follows from others."""

    own: float = 1.0
    by_class: ClassVar[float] = 1.0

    @property
    def both(self) -> float:
        return self.own * self.by_class


class Table(dict[str, float]):
    pass


def doubled(x: Any) -> Any:
    return aten.mul(x, 2)


def halved(x: Any) -> Any:
    return aten.mul(x, 0.5)


SCALE = 1.0
TABLE: dict[str, Any] = {"beta": 1.0, "others": [1.0, 2.0]}
OPTIONS = Options()
TERMS: list[Any] = [Options(), {"second": Options()}]
ARGS = argparse.Namespace(alpha=1.0)
SLOTTED = Slotted()
OWN_TABLE = Table(delta=1.0)
KNOWN = ms.Tensor(np.array([1, 2, 3], np.float32))
activation = doubled


def loss(x: Any) -> Any:
    scaled = aten.mul(activation(x), SCALE * TABLE["beta"] * TABLE["others"][1] * Factors.first)
    weight = OPTIONS.weight() + sum(term.weight() for term in (TERMS[0], TERMS[1]["second"]))
    return aten.sum(aten.mul(scaled, KNOWN)) * weight * ARGS.alpha * SLOTTED.both * OWN_TABLE["delta"]


class Trainer:
    def __init__(self) -> None:
        self.net, self.factor, self.epoch = bridge.cell(torch.nn.Linear(3, 2)), 1.0, 0

    def times(self, x: Any) -> Any:
        return x * self.factor

    def loss(self, x: Any) -> Any:
        return self.times(self.net(x)).sum()

    def advance(self) -> None:
        self.epoch += 1


class Block(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.lines = nn.CellList([bridge.nn.Linear(3, 3), bridge.nn.Linear(3, 3)])
        self.factor = 1.0

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        for line in self.lines:
            x = aten.mul(line(x), self.factor)
        return aten.sum(x)


def in_graph(function: Any) -> Callable[[ms.Tensor], Any]:
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return function(x)

    return ms.jit(call)  # type: ignore[no-any-return]


Way = Callable[[Any], Any]
WAYS: dict[str, Way] = {"fuse": bridge.fuse, "value_and_grad": bridge.value_and_grad}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def numbers(found: Any) -> list[bytes]:
    return [one.asnumpy().tobytes() for one in (found if isinstance(found, tuple) else (found,))]


def are_equal(function: Any, graph: Any) -> bool:
    x = ms.Tensor(data(2, 3))
    return numbers(function(x)) == numbers(graph(x))


def assign(name: str, value: Any) -> None:
    globals()[name] = value


CHANGES: dict[str, Callable[[], None]] = {
    "a number": lambda: assign("SCALE", 3.0),
    "an item": lambda: TABLE.update(beta=5.0),
    "an item of an item": lambda: TABLE["others"].__setitem__(1, 7.0),
    "a table": lambda: assign("TABLE", {"beta": 3.0, "others": (0.0, 1.0)}),
    "a function": lambda: assign("activation", halved),
    "an attribute": lambda: setattr(OPTIONS, "gamma", 2.0),
    "what a method reads": lambda: setattr(OPTIONS, "name", "mean"),
    "an object": lambda: assign("OPTIONS", Options(4.0)),
    "an attribute in a list": lambda: setattr(TERMS[0], "gamma", 3.0),
    "an attribute in a table": lambda: setattr(TERMS[1]["second"], "gamma", -3.0),
    "an object in a list": lambda: TERMS.__setitem__(0, Options(6.0)),
    "an object in a table": lambda: TERMS[1].update(second=Options(7.0)),
    "a namespace": lambda: assign("ARGS", argparse.Namespace(alpha=-2.0)),
    "an attribute of a namespace": lambda: setattr(ARGS, "alpha", 0.5),
    "a slot": lambda: setattr(SLOTTED, "own", 2.0),
    "what has slots": lambda: assign("SLOTTED", Slotted(3.0)),
    "an attribute by the class": lambda: setattr(Slotted, "by_class", 4.0),
    "an item of a table of an own class": lambda: OWN_TABLE.update(delta=5.0),
    "a class": lambda: setattr(Factors, "first", 6.0),
    "a tensor": lambda: assign("KNOWN", ms.Tensor(np.array([3, 2, 1], np.float32))),
}


@pytest.fixture
def as_before() -> Any:
    kept = {name: globals()[name] for name in ("SCALE", "activation", "KNOWN")}
    yield
    globals().update(kept)
    globals().update(TABLE={"beta": 1.0, "others": [1.0, 2.0]}, OPTIONS=Options(), ARGS=argparse.Namespace(alpha=1.0))
    globals().update(TERMS=[Options(), {"second": Options()}], SLOTTED=Slotted(), OWN_TABLE=Table(delta=1.0))
    Factors.first = Slotted.by_class = 1.0


@ways
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_function_finds_is_followed(way: Way, change: Callable[[], None], as_before: None) -> None:
    function = way(loss)
    graph = in_graph(function)
    assert are_equal(function, graph)
    before = numbers(graph(ms.Tensor(data(2, 3))))
    change()
    assert are_equal(function, graph)
    assert numbers(graph(ms.Tensor(data(2, 3)))) != before


@ways
def test_variables_around_a_function_are_followed(way: Way) -> None:
    factor = 2.0

    def scaled(x: Any) -> Any:
        return aten.sum(aten.mul(x, factor))

    function = way(scaled)
    graph = in_graph(function)
    for factor in (2.0, 3.0, 3.0, 2.0):  # noqa: B007  # the function reads it
        assert are_equal(function, graph)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Mock:
    bridge.cell(torch.nn.Linear(1, 1))(ms.Tensor(data(1, 1)))  # what the first call changes is changed
    executor = _mindspore.jit_executor()
    counted = Mock(side_effect=executor.compile)
    monkeypatch.setattr(executor, "compile", lambda *args, **kwargs: counted(*args, **kwargs))
    return counted


@ways
def test_attributes_that_the_code_names_are_followed(way: Way) -> None:
    trainer = Trainer()
    function = way(trainer.loss)
    graph = in_graph(function)
    for trainer.factor in (1.0, 2.0, 3.0, 2.0):
        trainer.advance()
        assert are_equal(function, graph)


@pytest.mark.skipif(not _mindspore._NAMES_ARE_KNOWN, reason="MindSpore 2.8 and 2.9 look for the graph in each call")
def test_other_attributes_are_not(compilations: Mock) -> None:
    trainer = Trainer()
    graph, x = in_graph(bridge.fuse(trainer.loss)), ms.Tensor(data(2, 3))
    for _ in range(2):
        graph(x)
    before = compilations.call_count
    for _ in range(3):
        trainer.advance()
        graph(x)
    assert compilations.call_count == before


def test_attributes_of_cells_are_followed() -> None:
    block = Block()
    fused = bridge.fuse(block)
    graph = in_graph(fused)
    for block.factor in (1.0, 2.0, 1.0, -1.0):
        assert are_equal(fused, graph)


@ways
def test_another_cell_in_the_place_of_one_is_refused(way: Way) -> None:
    net = bridge.cell(torch.nn.Linear(3, 2))
    function = way(lambda x: net(x).sum())
    graph, x = in_graph(function), ms.Tensor(data(2, 3))
    assert are_equal(function, graph)
    net = bridge.cell(torch.nn.Linear(3, 2))
    for call in (function, graph):
        with pytest.raises(RuntimeError, match="was not there when the program was made"):
            call(x)


def test_a_value_that_changes_in_each_call_is_said_once(as_before: None) -> None:
    function = bridge.fuse(loss)
    graph = in_graph(function)
    with pytest.warns(UserWarning, match=r"test_named_constants\.SCALE was changed again: 8 graphs") as found:
        for step in range(10):
            assign("SCALE", float(step))
            assert are_equal(function, graph)
    assert sum("was changed again" in str(one.message) for one in found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in (3, 7):
            assign("SCALE", float(step))
            assert are_equal(function, graph)


CALLS = {"n": 0}


def counted(x: Any) -> Any:
    CALLS["n"] += 1
    return aten.mul(x, CALLS["n"])


def counted_around() -> Callable[[Any], Any]:
    calls = 0

    def function(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return aten.mul(x, calls)

    return function


class CountingCell(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def construct(self, x: Any) -> Any:
        self.calls += 1
        return aten.mul(x, self.calls)


@pytest.mark.parametrize("make", [lambda: counted, counted_around, CountingCell])
def test_what_a_call_changes_and_the_next_one_reads_is_refused(make: Callable[[], Any]) -> None:
    program = bridge.fuse(make())

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return program(x)

    with pytest.raises(RuntimeError, match="changes in a call and is used by the next one"):
        call(ms.Tensor(data(3)))


SEEN: list[int] = []


def noting(x: Any) -> Any:
    SEEN.append(len(x))
    return aten.mul(x, 2)


def test_what_a_call_changes_and_nobody_reads_is_not() -> None:
    program = bridge.fuse(noting)

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return program(x)

    for _ in range(2):
        np.testing.assert_array_equal(call(ms.Tensor(data(3))).asnumpy(), data(3) * 2)
