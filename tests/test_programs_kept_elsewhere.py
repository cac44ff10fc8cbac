"""Modules that keep tensors elsewhere than in their attributes, as tables of positions and masks: a graph, PyNative
mode after it, and the next graph have PyTorch's results."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge import aten
from shared import data, on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]

_TABLES: dict[Any, Any] = {}
_ORDERED: OrderedDict[int, torch.Tensor] = OrderedDict()
_SPACE: Any = SimpleNamespace(table=None)
_LOG: list[torch.Tensor] = []
_last: torch.Tensor | None = None


def made() -> torch.Tensor:
    return torch.arange(4.0, device=torch_device())


class InTable(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if 4 not in _TABLES:
            _TABLES[4] = (made().cos(), [made().sin()])
        cosine, (sine,) = _TABLES[4]
        return x * cosine + sine


class InVariable(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global _last
        if _last is None:
            _last = made()
        return x + _last


@functools.lru_cache
def cached(length: int) -> torch.Tensor:
    return made()[:length]


class Cached(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + cached(4)


class InClass(nn.Module):
    table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if InClass.table is None:
            InClass.table = made()
        return x + InClass.table


class Positions:
    def __init__(self) -> None:
        self.table: torch.Tensor | None = None

    def __call__(self) -> torch.Tensor:
        if self.table is None:
            self.table = made()
        return self.table


class InObject(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.positions = Positions()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.positions()


def remembered(function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    found: list[torch.Tensor] = []

    def call() -> torch.Tensor:
        if not found:
            found.append(function())
        return found[0]

    return call


@remembered
def once() -> torch.Tensor:
    return made()


class InClosure(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + once()


class InDefault(nn.Module):
    def forward(self, x: torch.Tensor, tables: dict[int, torch.Tensor] = {}) -> torch.Tensor:  # noqa: B006
        if 4 not in tables:
            tables[4] = made().tan()
        return x * tables[4]


class InOrderedTable(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if 4 not in _ORDERED:
            _ORDERED[4] = made().exp()
        return x * _ORDERED[4]


class InNamespace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if _SPACE.table is None:
            _SPACE.table = made().sqrt()
        return x * _SPACE.table


def keeping() -> Callable[[int], torch.Tensor]:
    tables: dict[int, torch.Tensor] = {}

    def table(length: int) -> torch.Tensor:
        if length not in tables:
            tables[length] = made()[:length].sin()
        return tables[length]

    return table


class AroundAnAttribute(nn.Module):
    """Of the variables around a function that is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.table = keeping()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table(4)


class ChecksToo(nn.Module):
    """A check has its module run more than once while it is captured."""

    def __init__(self) -> None:
        super().__init__()
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = made()
        assert (x < 9).all(), "too large"
        return x + self.table + cached(4)


class Logs(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _LOG.append(x.sum())
        return x + 1


@pytest.mark.parametrize(
    "make",
    [
        InTable, InVariable, Cached, InClass, InObject, InClosure, InDefault, InOrderedTable, InNamespace,
        AroundAnAttribute, ChecksToo, Logs,
    ],
    ids=lambda make: make.__name__,
)  # fmt: skip
def test_all_calls_have_pytorchs_results(make: Callable[[], nn.Module]) -> None:
    x = data(3, 4)
    module = make()
    cell: Any = bridge.cell(module)
    found = [cell(ms.Tensor(x)), bridge.cell(make())(ms.Tensor(x))]  # type: ignore[operator]
    ms.set_context(mode=ms.PYNATIVE_MODE)
    found.append(cell(ms.Tensor(x)))
    result = module(on_device(x))
    assert type(result) is torch.Tensor
    for own in found:
        assert own.asnumpy().tobytes() == result.cpu().numpy().tobytes()


class DrawsOnce(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if "drawn" not in _TABLES:
            _TABLES["drawn"] = torch.rand_like(x)
        return x + _TABLES["drawn"]


@functools.lru_cache
def drawn(length: int) -> torch.Tensor:
    return torch.rand(length, device=torch_device())


class DrawsOnceCached(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + drawn(4)


class AddsTheLast(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last = _TABLES.get("last", 0.0)
        _TABLES["last"] = 2 * x
        return x + last


@pytest.mark.parametrize(
    "make, name", [(DrawsOnce, "_TABLES.drawn"), (DrawsOnceCached, "drawn"), (AddsTheLast, "last")]
)
def test_what_the_next_call_reads_is_refused(make: Callable[[], nn.Module], name: str) -> None:
    cell: Any = bridge.cell(make())
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"{name} changes in a call and is used by the next one"):
            cell(ms.Tensor(data(3, 4)))
    ms.set_context(mode=ms.PYNATIVE_MODE)
    cell(ms.Tensor(data(3, 4))).asnumpy()


class Table(nn.Module):
    table: torch.Tensor | None = None

    def forward(self) -> torch.Tensor:
        if self.table is None:
            self.table = made()
        return self.table


class InAList(nn.Module):
    """A module that is no part of another one, where nobody looks."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = [Table()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.tables[0]()


def test_what_a_capture_leaves_where_nobody_looks_is_an_error() -> None:
    cell: Any = bridge.cell(InAList())
    x = ms.Tensor(data(3, 4))
    assert cell(x).shape == (3, 4)
    with pytest.raises(RuntimeError, match="a capture for a graph has left it where the bridge does not look"):
        cell(ms.Tensor(data(2, 4)))
    ms.set_context(mode=ms.PYNATIVE_MODE)
    with pytest.raises(RuntimeError, match="a capture for a graph has left it where the bridge does not look"):
        cell(x)


class Leaves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last, self.table, self.calls = x.mean(), torch.arange(3.0, device=x.device), 1
        LEFT.append(x.detach())
        return x * self.table


LEFT: list[torch.Tensor] = []


def test_a_warning_names_what_a_graph_does_not_leave() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    for _ in range(2):  # the second time the plan is one that was kept
        cell: Any = bridge.cell(Leaves())
        with pytest.warns(
            UserWarning, match="forward leaves something else there in each call, and a graph does not"
        ) as found:
            cell(ms.Tensor(data(2, 3))).asnumpy()
        names = [str(one.message).partition(": ")[0] for one in found]
        assert [name for name in names if name.endswith(("last", "table", "calls"))] == ["Leaves.calls", "Leaves.last"]
        assert [name for name in names if "LEFT" in name] == ["test_programs_kept_elsewhere.LEFT.0"]
    ms.set_context(mode=ms.PYNATIVE_MODE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cell(ms.Tensor(data(2, 3))).asnumpy()
    assert cell.module.last.item() == on_device(data(2, 3)).mean().item()


class LoadsAll(OrderedDict):  # type: ignore[type-arg]
    """A table as transformers has them: it knows its keys, and imports everything when somebody asks for the items."""

    def _refuse(self, *_: Any) -> Any:
        raise ImportError("there is no such model")

    __len__ = __iter__ = keys = values = items = _refuse  # type: ignore[assignment]

    def __getitem__(self, key: str) -> float:
        return {"scale": 3.0}[key]


LOADS_ALL = LoadsAll()


class Looks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = LOADS_ALL

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table["scale"] + LOADS_ALL["scale"]


def test_nobody_asks_a_table_for_its_items(context_mode: str) -> None:
    x = data(2, 3)
    net = bridge.cell(Looks())
    for _ in range(3):
        np.testing.assert_array_equal(net(ms.Tensor(x)).asnumpy(), Looks()(torch.from_numpy(x)).numpy())


def test_nobody_asks_a_table_of_own_code_for_its_items(context_mode: str) -> None:
    table = LoadsAll()

    class Holds:
        table = LOADS_ALL

    holds = Holds()

    @bridge.fuse
    def scaled(x: ms.Tensor) -> ms.Tensor:
        return aten.mul(x, table["scale"] + holds.table["scale"])

    x = ms.Tensor(data(2, 3))
    for _ in range(3):
        np.testing.assert_array_equal(scaled(x).asnumpy(), x.asnumpy() * 6)


class Recent(OrderedDict):  # type: ignore[type-arg]
    """A cache: what is read comes last."""

    def __getitem__(self, key: str) -> Any:
        self.move_to_end(key)
        return super().__getitem__(key)


def test_a_cache_of_cells_has_its_own_order(context_mode: str) -> None:
    cells = {name: bridge.cell(nn.Linear(3, 3)) for name in "abc"}
    table = Recent(cells)
    _ = table["a"]

    @bridge.fuse
    def both(x: ms.Tensor) -> ms.Tensor:
        return aten.sub(table["a"](x), table["c"](x))

    x = ms.Tensor(data(2, 3))
    for _ in range(3):
        expected = aten.sub(cells["a"](x), cells["c"](x)).asnumpy()
        np.testing.assert_array_equal(both(x).asnumpy(), expected)
