"""Modules that put other tensors and numbers in the place of what a call has used. A graph refuses these if its next
call would have to do something else, and takes those that keep a table."""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from shared import data, on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, device=torch_device())


def steps(count: int) -> torch.Tensor:
    return torch.arange(float(count), device=torch_device())[:, None]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)


class Replaces(Layer):
    """A constant, after it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = number(3.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x) * self.scale
        self.scale = number(2.0)
        return y


class ReplacesBuffer(Layer):
    """The same of a buffer that is not persistent."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", number(3.0), persistent=False)

    forward = Replaces.forward  # type: ignore[assignment]


class ReplacesItem(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.scales = {"own": number(3.0)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x) * self.scales["own"]
        self.scales["own"] = number(2.0)
        return y


class Swaps(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = number(1.0), number(2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x) * self.one
        self.one, self.other = self.other, self.one
        return y


class Drops(Layer):
    """A constant, and keeps a table."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: torch.Tensor | None = number(5.0)
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        self.table = steps(len(x))
        if self.scale is not None:
            y = y * self.scale
        self.scale = None
        return y + self.table


class CountsBesideATable(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table = steps(len(x))
        self.calls += 1
        return self.linear(x) * self.calls + self.table


class BeginsBesideATable(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.is_first = True
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        self.table = steps(len(x))
        y = y + self.table if self.is_first else y - self.table
        self.is_first = False
        return y


class UsesTheLastOfATable(Layer):
    """A table that grows after that."""

    def __init__(self) -> None:
        super().__init__()
        self.table = steps(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x) + self.table[-1]
        if len(self.table) < len(x):
            self.table = steps(len(x))
        return y


class AsksAConstant(Layer):
    """Of which a program has the number only."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = number(3.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x) * float(self.scale)
        self.scale = number(2.0)
        return y


class TakesATableForTheFirstCall(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        if self.table is None:
            self.table = steps(len(x))
            return y
        return y + self.table


class CountsBesideAWrittenTable(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.calls, self.table = 0, torch.zeros(16, 1, device=torch_device())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table[: len(x)] = steps(len(x))
        self.calls += 1
        return self.linear(x) * self.calls + self.table[: len(x)]


class GathersTables(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        for table in self.tables:
            y = y + table
        self.tables.append(steps(len(x)))
        return y


class TurnsAZero(Layer):
    """Into a negative one, which is equal to it."""

    def __init__(self) -> None:
        super().__init__()
        self.zero = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.copysign(self.linear(x), torch.full((), self.zero, device=x.device))
        self.zero = -0.0
        return y


class BeginsLate(Layer):
    """Does something else from its fourth call on."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y: torch.Tensor = self.linear(x)
        return y if self.calls < 4 else -y


class Factor(nn.Module):
    def __init__(self, changes: bool) -> None:
        super().__init__()
        self.factors, self.changes = (1.0, 2.0), changes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.factors[0]
        if self.changes:
            self.factors = (2.0, 1.0)
        return y


class Factors(Layer):
    """Two parts with one tuple, of which the second gets another one."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = Factor(False), Factor(True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.other(self.one(self.linear(x)))
        return y


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (AsksAConstant, "scale"),
        (TakesATableForTheFirstCall, "table"),
        (CountsBesideAWrittenTable, "calls"),
        (GathersTables, "tables"),
        (TurnsAZero, "zero"),
        (BeginsLate, "calls"),
        (Factors, "other.factors"),
        (Replaces, "scale"),
        (ReplacesBuffer, "scale"),
        (ReplacesItem, "scales"),
        (Swaps, "one"),
        (Drops, "scale"),
        (CountsBesideATable, "calls"),
        (BeginsBesideATable, "is_first"),
        (UsesTheLastOfATable, "table"),
    ],
)
def test_what_the_next_call_would_do_otherwise_is_refused(make: Callable[[], nn.Module], name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"{make.__name__}.{name} changes in a call and is used by the next one"):
        ms.jit(bridge.cell(make()))(ms.Tensor(data(5, 4)))


class Holder:
    """Of a constant, as its class and an object have it."""

    in_class = number(3.0)

    def __init__(self) -> None:
        self.in_object = number(3.0)


_in_file = number(3.0)
_made: torch.Tensor | None = None
_table = {"own": number(3.0)}
_holder = Holder()
_is_first = True


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    global _in_file, _is_first, _made
    yield
    _in_file, _is_first, _made = number(3.0), True, None
    _table["own"] = Holder.in_class = _holder.in_object = number(3.0)


class InFile(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global _in_file
        y: torch.Tensor = self.linear(x) * _in_file
        _in_file = number(2.0)
        return y


class InTable(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x) * _table["own"]
        _table["own"] = number(2.0)
        return y


class InClass(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x) * Holder.in_class
        Holder.in_class = number(2.0)
        return y


class InObject(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x) * _holder.in_object
        _holder.in_object = number(2.0)
        return y


class AsksInFile(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global _in_file
        y: torch.Tensor = self.linear(x) * float(_in_file)
        _in_file = number(2.0)
        return y


class MakesInFile(Layer):
    """A table, which it takes for a sign of the first call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global _made
        y: torch.Tensor = self.linear(x)
        if _made is None:
            _made = steps(len(x))
            return y
        return y + _made


class BeginsInFile(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global _is_first
        y: torch.Tensor = self.linear(x) if _is_first else -self.linear(x)
        _is_first = False
        return y


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (InFile, "_in_file"),
        (AsksInFile, "_in_file"),
        (MakesInFile, "_made"),
        (InTable, "_table"),
        (InClass, "Holder.in_class"),
        (InObject, "_holder"),
        (BeginsInFile, "_is_first"),
    ],
)
def test_what_a_file_would_have_otherwise_is_refused(make: Callable[[], nn.Module], name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"{name} changes in a call and is used by the next one"):
        ms.jit(bridge.cell(make()))(ms.Tensor(data(5, 4)))


class KeepsATable(Layer):
    """With its length, as rotary positions do."""

    def __init__(self, most: int | None) -> None:
        super().__init__()
        self.length, self.most = 0, most
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.length < len(x):
            self.length = self.most or len(x)
            self.table = (steps(self.length).cos() * torch.ones(64, device=x.device))[:, :4]
        assert self.table is not None
        return self.linear(x) + self.table[: len(x)]


class SharesATable(Layer):
    """One part lets grow what another has used."""

    def __init__(self) -> None:
        super().__init__()
        self.table = steps(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first: torch.Tensor = self.linear(x)[:3] + self.table[:3]
        if len(self.table) < len(x):
            self.table = steps(len(x))
        return self.linear(x) + self.table[: len(x)] + first.sum()


class KeepsTheLength(Layer):
    """In a tensor, which it asks."""

    def __init__(self) -> None:
        super().__init__()
        self.length = number(0.0)
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.length:
            self.table, self.length = steps(len(x)), number(float(len(x)))
        assert self.table is not None
        return self.linear(x) + self.table[: len(x)]


class Kept(NamedTuple):
    length: int
    table: torch.Tensor | None


class Slots:
    __slots__ = ("length", "table")

    def __init__(self) -> None:
        self.length, self.table = 0, None


class KeepsInside(Layer):
    """A table and its length, in an object that has these attributes."""

    def __init__(self, kept: Any) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kept.length < len(x):
            if isinstance(self.kept, Kept):
                self.kept = Kept(len(x), steps(len(x)))
            else:
                self.kept.length, self.kept.table = len(x), steps(len(x))
        return self.linear(x) + self.kept.table[: len(x)]


class KeepsInContainer(Layer):
    """Tables by their lengths."""

    def __init__(self, tables: Any) -> None:
        super().__init__()
        self.tables, self.last = tables, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) not in self.tables:
            self.tables[len(x)], self.last = (steps(len(x)), len(x)), len(x)
        return self.linear(x) + self.tables[len(x)][0]


class Masks(nn.Module):
    """With its size, as Swin has it."""

    def __init__(self) -> None:
        super().__init__()
        self.size: tuple[int, ...] = (0, 0)
        self.mask: torch.Tensor | None = None
        self.last: torch.Tensor | None
        self.register_buffer("last", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.size != tuple(x.shape):
            mask = torch.ones(x.shape, device=x.device).tril() == 0
            torch._assert_async((mask | ~mask).all())
            self.size, self.mask = tuple(x.shape), mask
        assert self.mask is not None
        self.last = x.detach()
        return torch.nan_to_num(x.masked_fill(self.mask, float("nan")), nan=0.5)


class WritesATable(Layer):
    """From a frozen parameter, and makes an attribute with its length."""

    table: torch.Tensor
    length: int

    def __init__(self) -> None:
        super().__init__()
        self.rates = nn.Parameter(torch.rand(4), requires_grad=False)
        self.register_buffer("table", torch.zeros(16, 4), persistent=False)

    def angles(self, count: int) -> torch.Tensor:
        if count <= getattr(self, "length", 0):
            return self.table[:count].detach()
        found = torch.arange(count, device=self.rates.device)[:, None] * self.rates
        self.table[:count], self.length = found, count
        return found

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.angles(len(x)).cos() + x * self.angles(len(x)).sin()


def masks() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), Masks(), Masks())


MAKE: dict[str, Callable[[], nn.Module]] = {
    "a table": lambda: KeepsATable(None),
    "a large table": lambda: KeepsATable(20_000),
    "a table that parts share": SharesATable,
    "the length in a tensor": KeepsTheLength,
    "in a named tuple": lambda: KeepsInside(Kept(0, None)),
    "in a namespace": lambda: KeepsInside(SimpleNamespace(length=0, table=None)),
    "in slots": lambda: KeepsInside(Slots()),
    "in an OrderedDict": lambda: KeepsInContainer(OrderedDict()),
    "in a defaultdict": lambda: KeepsInContainer(defaultdict(tuple)),
    "a written table": WritesATable,
    "masks": masks,
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_a_table_is_none_of_these(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    module = make()
    own = copy.deepcopy(module).to(torch_device())
    call = ms.jit(bridge.cell(module))
    for count in (5, 5, 4, 7):
        x = data(count, 4)
        np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), own(on_device(x)).detach().cpu().numpy())
    for part, other in zip(module.modules(), make().modules(), strict=True):
        assert part._buffers.keys() == other._buffers.keys() and vars(part).keys() == vars(other).keys()


class ScalesByTheGreatestLength(Layer):
    """As rotary positions with dynamic scaling do."""

    def __init__(self) -> None:
        super().__init__()
        self.most, self.scale = 3, 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.most:
            self.most, self.scale = len(x), len(x) / 3
        return self.linear(x) * self.scale


class KeepsAShareOfTheLength(Layer):
    """A table that begins otherwise if it is longer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = steps(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(self.table) < len(x):
            self.table = steps(len(x)).softmax(0)
        return self.linear(x) + self.table[: len(x)]


@pytest.mark.parametrize("make", [ScalesByTheGreatestLength, KeepsAShareOfTheLength])
def test_what_a_call_of_another_size_does_otherwise(make: Callable[[], nn.Module]) -> None:
    """A shorter one goes on with what the longer one has left. What a longer one leaves would be another result of the
    shorter one."""
    torch.manual_seed(0)
    module = make()
    own = copy.deepcopy(module).to(torch_device())
    call = ms.jit(bridge.cell(module))
    for count in (5, 5, 4, 5, 4):
        x = data(count, 4)
        np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), own(on_device(x)).detach().cpu().numpy())
    with pytest.raises(RuntimeError, match=r"changes in a call and is used by the next one"):
        call(ms.Tensor(data(6, 4)))
