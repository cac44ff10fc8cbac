"""Programs for sizes at which nothing was captured, out of those that were captured at others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.programs import capture, plan, sizes
from of_users.routed import Asking, Counted, Experts, Layers, Rows, Split, attention
from shared import torch_device

STEPS = 24


def numbers(step: int, rows: int = 40) -> np.ndarray:
    return np.random.default_rng(step).standard_normal((rows, 4)).astype(np.float32)


def run(module: nn.Module, arrays: list[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Compare values and gradients with PyTorch's, step by step. Gives how many captures were made until each step."""
    net = bridge.cell(module)
    reference = copy.deepcopy(net.module).to(torch_device())
    captures: list[int] = []
    made, make, make_count = [0], plan.make, plan.make_count

    def counted(own: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            made[0] += 1
            return own(*args, **kwargs)

        return function

    monkeypatch.setattr(plan, "make", counted(make))
    monkeypatch.setattr(plan, "make_count", counted(make_count))
    differentiate = ms.value_and_grad(net, None, net.trainable_params())

    @ms.jit
    def step(x):
        return differentiate(x)

    for array in arrays:
        value, gradients = step(ms.Tensor(array))
        expected = reference(torch.from_numpy(array).to(torch_device()))
        found = torch.autograd.grad(expected, [*reference.parameters()], torch.ones_like(expected), allow_unused=True)
        np.testing.assert_array_equal(value.asnumpy(), expected.detach().cpu().numpy())
        for own, other, weight in zip(gradients, found, reference.parameters(), strict=True):
            wanted = torch.zeros_like(weight) if other is None else other
            np.testing.assert_array_equal(own.asnumpy(), wanted.cpu().numpy())
        captures.append(made[0])
    return captures


def halves(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a[: len(a) // 2 * 2].reshape(-1, 8).sum(0) + b.sum() / len(b)


@pytest.mark.parametrize("make", [Experts, Asking, lambda: Rows(attention)], ids=["experts", "asking", "attention"])
def test_further_sizes_need_no_capture(make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    captures = run(make(), [numbers(step) for step in range(STEPS)], monkeypatch)
    assert captures[-1] - captures[STEPS // 2] < STEPS // 2


class Listed(nn.Module):
    """Takes integers of data in a list, for the rows of the first tables, of 10 rows each."""

    def __init__(self, function: Callable[[torch.Tensor, list[int]], torch.Tensor], count: int) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.function, self.count = function, count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.layer(x).view(-1, 10, 4)
        return self.function(rows, x[: self.count, 0].long().tolist())


def listed(step: int, integers: list[int]) -> np.ndarray:
    array = numbers(step)
    array[: len(integers), 0] = integers
    return array


def cut(rows: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    return torch.stack([rows[i, :length].mean(0) for i, length in enumerate(lengths)])


def put(rows: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    result = torch.zeros_like(rows)
    for i, length in enumerate(lengths):
        result[i, :length] = rows[i, :length] * 2
    return result


@pytest.mark.parametrize("function", [cut, put])
def test_lengths_in_a_list_need_few_captures(
    function: Callable[[torch.Tensor, list[int]], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are those of whole tables, of which PyTorch makes no slice."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    arrays = [listed(step, random.integers(2, 11, 4).tolist()) for step in range(2 * STEPS)]
    captures = run(Listed(function, 4), arrays, monkeypatch)
    assert captures[-1] == captures[STEPS]


def parted(rows: torch.Tensor, integers: list[int]) -> torch.Tensor:
    begin, count, kind = integers
    return rows[0, begin : begin + count].sum(0) * (2 if kind == 6 else 1)


def ordered(rows: torch.Tensor, integers: list[int]) -> torch.Tensor:
    depth, height, width = integers
    part = rows[:, :, :3].reshape(10, 2, 6)[:depth, :height, :width]
    return part.sum() * (2 if depth > width else 1)


def special(rows: torch.Tensor, integers: list[int]) -> torch.Tensor:
    return torch.stack([rows[i, :length].sum(0) * (2 if length == 6 else 1) for i, length in enumerate(integers)])


@pytest.mark.parametrize(
    ("function", "others", "late"),
    [
        (parted, [[b, c, k] for b in (2, 3, 6) for c in (2, 5, 6) for k in (2, 3, 7)], [[2, 3, 6], [3, 5, 6]]),
        (ordered, [[d, 2, w] for d in (2, 3) for w in (4, 5, 6)], [[5, 2, 4], [4, 2, 3]]),
        (special, [[a, b, c] for a in (2, 3, 7) for b in (4, 5, 8) for c in (3, 7)], [[6, 4, 3], [3, 4, 6], [2, 6, 6]]),
    ],
)
def test_integers_in_a_list_may_be_for_different_things(
    function: Any, others: list[list[int]], late: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    arrays = [listed(step, integers) for step, integers in enumerate([*others, *late])]
    run(Listed(function, 3), arrays, monkeypatch)


def test_integers_that_are_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which sizes come after one then are others."""
    torch.manual_seed(0)
    run(Counted(), [numbers(step, 4) for step in range(STEPS)], monkeypatch)


@pytest.mark.usefixtures("own_programs")
def test_answers_in_layers_take_few_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They follow from each other's. In the first steps some experts have nothing to do."""
    captured, first = capture._captured, [0]

    def counting(*args: Any) -> Any:
        first[0] += 1
        return captured(*args)

    monkeypatch.setattr(capture, "_captured", counting)
    torch.manual_seed(0)
    net = Layers()
    run(net, [numbers(0, 2)], monkeypatch)
    assert first[0] < 60
    run(net, [numbers(step, rows) for step, rows in enumerate((2, 2, 20))], monkeypatch)


THRESHOLDS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "a number": lambda a, b: a.sum(0) * (2 if len(a) > 24 else 1),
    "a sum": lambda a, b: a.sum(0) * (2 if len(a) + 2 * len(b) > 60 else 1) + b.sum(0),
    "an order": lambda a, b: a.sum(0) * (2 if len(a) > len(b) else 1) + b.sum(0),
    "the smaller one": lambda a, b: a[: len(b)].sum(0) - b[: len(a)].sum(0),
    "a remainder": lambda a, b: a.sum(0) * (2 if len(a) % 3 == 0 else 1) + b.sum(0),
    "a quotient": halves,
    "a share": lambda a, b: a.sum(0) * (1 / len(a)) + b.sum(0) / len(b),
}


@pytest.mark.parametrize("function", THRESHOLDS.values(), ids=THRESHOLDS)
def test_what_follows_from_a_size_is_followed(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows at first, then more; most of them on one side, then on the other."""
    torch.manual_seed(0)
    arrays = [numbers(step, 40) - (0.5 if step < STEPS // 2 else -0.5) for step in range(STEPS)]
    run(Rows(function), arrays, monkeypatch)


@pytest.mark.parametrize("divisor", [2, 3, 4])
def test_a_remainder_that_comes_late_is_followed(divisor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function asks for a remainder that none of the first sizes has."""

    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.sum(0) * (2 if len(a) % divisor == 1 else 1) + b.sum(0)

    counts = [n for n in (20, 22, 26, 18, 30, 24, 28, 16, 32, 14, 12, 34) if n % divisor != 1]
    torch.manual_seed(0)
    arrays = [np.abs(numbers(step)) for step in range(len(counts) + 4)]
    for array, count in zip(arrays, [*counts, 13, 17, 25, 29], strict=True):
        array[count:] *= -1
    run(Rows(function), arrays, monkeypatch)


class Limited(Rows):
    """Does something else for one number of rows, which stands in it or follows from a parameter."""

    def __init__(self, which: str) -> None:
        super().__init__(self.limited)
        self.which, self.most = which, 21
        self.places = nn.Parameter(torch.zeros(22, 4))

    def limited(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        most = {"literal": 21, "attribute": self.most, "parameter": len(self.places) - 1}[self.which]
        return a.sum(0) * (2 if len(a) == most else 1) + b.sum(0) + self.places.sum()


@pytest.mark.parametrize("which", ["literal", "attribute", "parameter"])
def test_a_number_that_comes_late_is_followed(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [20, 26, 18, 30, 24, 28, 16, 25, 14, 12, 34, 19, 21, 23]
    torch.manual_seed(0)
    arrays = [np.abs(numbers(step)) for step in range(len(counts))]
    for array, count in zip(arrays, counts, strict=True):
        array[count:] *= -1
    run(Limited(which), arrays, monkeypatch)


def test_programs_that_were_not_captured_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    run(Rows(attention), [numbers(step, 200) for step in range(STEPS)], monkeypatch)
    assert len(sizes._families[-1]._plans) < STEPS


OF_SHARES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nothing": torch.relu,
    "a number": lambda a: a * (2 if len(a) > 28 else 1),
    "a remainder": lambda a: a * (2 if len(a) % 3 == 0 else 1),
    "a quotient": lambda a: a * (1 + len(a) // 4),
    "a share": lambda a: a / max(len(a), 1),
}


@pytest.mark.parametrize("name", OF_SHARES)
def test_shares_of_a_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    captures = run(Split(3, OF_SHARES[name]), [numbers(step) for step in range(STEPS)], monkeypatch)
    if name == "nothing":
        assert captures[-1] - captures[STEPS // 2] < STEPS // 2


def test_shares_in_layers_and_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some shares are 0 or 1. Those of the second layer follow from the first one's."""
    torch.manual_seed(0)
    run(nn.Sequential(Split(), Split(4)), [numbers(step, rows) for step, rows in enumerate((12, 3, 3))], monkeypatch)


class Gated(nn.Module):
    """Each row goes to the experts whose gates are not 0. How many rows there are in all, data decides, too."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 3), nn.ReLU()) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gates = torch.softmax(self.gate(x), 1)
        top, which = gates.topk(2, dim=1)
        gates = torch.zeros_like(gates).scatter(1, which, top)
        _, order = torch.nonzero(gates).sort(0)
        rows = torch.nonzero(gates)[order[:, 1], 0]
        parts = x[rows].split((gates > 0).sum(0).tolist())
        found = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        return torch.zeros(len(x), 3, device=x.device).index_add(0, rows, found * gates[rows].sum(1, keepdim=True))


def test_shares_of_a_whole_that_data_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    run(Gated(), [numbers(step, rows) for step, rows in enumerate((12, 12, 5))], monkeypatch)


class Short(Split):
    """Splits less than all rows, or less in its second layer than in the first one."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first = first

    def each(self, rows: torch.Tensor, counts: list[int], weights: torch.Tensor) -> torch.Tensor:
        return super().each(rows[self.first if weights is self.inner else 1 :], counts, weights)


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad])
@pytest.mark.parametrize("first", [0, 1])
def test_shares_that_are_no_whole_are_an_error(first: int, differentiate: Callable[..., Any]) -> None:
    net = bridge.cell(Short(first))
    of = differentiate(net, None, net.trainable_params())

    @ms.jit
    def step(x):
        return of(x)

    with pytest.raises(RuntimeError, match=r"split_sizes to sum exactly to \d ") as caught:
        step(ms.Tensor(numbers(0, 5)))
    assert "parts = rows.split(counts, dim=0)" in str(caught.value)
    assert "taken to be others than the data's" in str(caught.value)
