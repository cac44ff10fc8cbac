"""Floats that Python takes from tensors, in a graph: compared, computed with, and given back to tensors."""

from __future__ import annotations

import copy
import math
from typing import Any
from unittest.mock import Mock

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.op import devices
from bridge.programs import plan
from shared import on_device, torch_device
from test_programs_data_sizes import Scaled, name_of

RNG = np.random.default_rng(1)
ARRAYS = [RNG.standard_normal((3, 4)).astype(np.float32) for _ in range(4)]


def compared(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mean = x.mean().item()
    return y.exp() if mean > 0.1 else y.sin() if abs(mean) < 0.05 or not mean > -1 else -y


def of_a_draw(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        if torch.rand(1).item() < 0.5:
            y = nn.functional.dropout(y + 1, 0.2)
    return y


def chosen(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As torchvision's detectors choose the size of images."""
    sizes = [3]
    size = sizes[int(torch.empty(1).uniform_(0.0, float(len(sizes))).item())]
    factor = [2, 3, 5][int(torch.empty(1).uniform_(0.0, 3.0).item())]
    return y[:, :size] * factor


def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """In all the ways that arithmetic has."""
    most, least = y.detach().abs().max().item(), x.min().item()
    scale = (most - least) / 255 * 2 + most / (1 + abs(least)) - 1
    y = y * scale + most - (1 - scale)
    y = (scale - y / most) * -least
    y = torch.sub(y, y.sin(), alpha=scale) + torch.add(y, y, alpha=least)
    return (1 + scale) / (y.square() + abs(least)) + torch.add(y, scale).clamp(-most, max(most, 0.5))


def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y = y.clone()
    first = y[0]
    first *= x.sum().item()
    y[1].fill_(x.max().item())
    y[:, 1:].sub_(x.min().item())
    return y.masked_fill(x > 0, x.mean().item()) + y


def rounded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    most = x.abs().max().item()
    steps = math.floor(most) + math.ceil(most) + round(most * 2) + int(most)
    return y.repeat(steps + 1, 1).sum(0) * steps


def of_half_precision(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A number of Python's is not rounded to what it is multiplied with."""
    return (y.bfloat16() * (x.mean().item() / 3) + (x.double().sum().item() - 7)).float()


def written_afterwards(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    total = x.double().sum()
    before = total.item()
    total += 1
    return y * before - total.float()


def filled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mean = x.mean().item()
    return y * torch.full((4,), mean, device=y.device) + torch.full_like(y, mean) - y.new_full((3, 1), mean)


def by_python(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As Python and NumPy compute, and not as PyTorch does."""
    share = abs(x.mean().item()) + 0.1
    y = y * share**2 + 2**share + y * math.sqrt(share) - np.sqrt(1 + share) * math.atan2(share, 0.3)
    y = y * round(share, 2) + np.maximum(share, 0.5) + share % 0.3 - share // 0.25
    return (
        y * torch.tensor([share, 1 - share, 2, 1]) + torch.as_tensor(share) - torch.tensor(share, dtype=torch.float64)
    )


on_cpu = pytest.mark.skipif(devices.target() == "GPU", reason="a graph on a GPU does not call Python")
FUNCTIONS = [
    written_afterwards, compared, of_a_draw, chosen, scaled, in_place, rounded, of_half_precision, filled,
    pytest.param(by_python, marks=on_cpu),
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=name_of)
def test_a_graph_has_pytorchs_floats(function: Any) -> None:
    torch.manual_seed(0)
    module = Scaled(function)
    own = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    step = ms.jit(ms.value_and_grad(net, None, net.trainable_params()))
    for seed, array in enumerate([*ARRAYS, *ARRAYS]):
        torch.manual_seed(seed)
        result, gradients = step(ms.Tensor(array))
        torch.manual_seed(seed)
        expected = own(on_device(array))
        own_gradients = torch.autograd.grad(expected.sum(), list(own.parameters()), allow_unused=True)
        np.testing.assert_array_equal(result.asnumpy(), expected.detach().cpu().numpy())
        for one, other in zip(gradients, own_gradients, strict=True):
            np.testing.assert_array_equal(one.asnumpy(), 0 if other is None else other.cpu().numpy())


class Tells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        loss = self.layer(x).square().mean()
        return {"loss": loss, "value": loss.item()}


class Counts(nn.Module):
    """How many are right; some of the numbers are needed before."""

    def __init__(self, needs: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.needs = needs

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
        y = self.layer(x)
        right = (y.argmax(1) == 0).sum()
        hits, more = right.item(), (y > 0).sum().item()
        right += 100
        loss = y.square().mean()
        if self.needs:
            loss = loss + y[:hits].sum() + y[max(more - 2, 0) :].sum() + torch.ones(more).sum()
            loss = loss * (2.0 if hits > 1 else 3.0)
        numbers = {"hits": hits, "share": hits / len(x), "less": 2 * hits - more + 1, "rate": 1.5 * more - hits / 3}
        return loss, {**numbers, "signs": -abs(-hits), "known": len(x)}


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad], ids=["MindSpore's", "in one"])
def test_integers_that_are_returned_are_tensors(differentiate: Any, needs: bool) -> None:
    torch.manual_seed(0)
    module = Counts(needs)
    own = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)

    def loss_of(x):
        loss, numbers = net(x)
        return loss, *numbers.values()

    step = ms.jit(differentiate(loss_of, None, net.trainable_params(), has_aux=True))
    for array in ARRAYS:
        (loss, *numbers), gradients = step(ms.Tensor(array))
        expected, own_numbers = own(on_device(array))
        assert loss.item() == expected.item()
        assert [number if isinstance(number, int) else number.item() for number in numbers] == [*own_numbers.values()]
        for one, other in zip(gradients, torch.autograd.grad(expected, list(own.parameters())), strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.cpu().numpy())


class CountsSteps(nn.Module):
    """What it gives follows from the number of its calls, as warm-ups and annealed losses do."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.layer: Any = nn.Linear(4, 4)
        self.step: Any
        self.register_buffer("step", torch.tensor(0))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return self.function(self.step.item(), self.layer(x))


def every_second(n: int, y: torch.Tensor) -> torch.Tensor:
    return y.sin() if n % 2 == 0 else y * n


COUNTED = {
    "a warm-up": lambda n, y: y * min(1.0, n / 3),
    "a sum": lambda n, y: y * ((1 + n) / (10 + n)) + n,
    "a quotient": lambda n, y: y / n - (n // 3),
    "every second": every_second,
    "few at first": lambda n, y: y * 2 if n < 3 else y / max(2, n),
    "not 0": lambda n, y: y * (1 - 1 / n) if n - 2 else y,
}


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad], ids=["MindSpore's", "in one"])
@pytest.mark.parametrize("function", COUNTED.values(), ids=COUNTED)
def test_integers_that_floats_follow_from_take_one_program(
    function: Any, differentiate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mock(side_effect=plan.make)
    monkeypatch.setattr(plan, "make", made)
    torch.manual_seed(0)
    net = bridge.cell(CountsSteps(function))
    own = copy.deepcopy(net.module).to(torch_device())
    both = differentiate(net, None, net.trainable_params())

    @ms.jit
    def step(x):
        return both(x)

    counts = []
    for array in [*ARRAYS, *ARRAYS]:
        value, gradients = step(ms.Tensor(array))
        expected = own(on_device(array))
        wanted = torch.autograd.grad(expected, list(own.parameters()), torch.ones_like(expected))
        np.testing.assert_array_equal(value.asnumpy(), expected.detach().cpu().numpy())
        for one, other in zip(gradients, wanted, strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.cpu().numpy())
        counts.append(made.call_count)
    assert counts[-1] == counts[3]


class Gives(nn.Module):
    def __init__(self, number: Any) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: torch.Tensor) -> Any:
        return x.exp(), self.number(x)


NUMBERS = [
    lambda x: int((x > 0).sum()),
    lambda x: len(x[x > 0]),
    lambda x: bool((x > 0).all()),
    lambda x: f"{(x > 0).sum().item()} of {x.numel()}",
]


@pytest.mark.parametrize("number", NUMBERS, ids=range(len(NUMBERS)))
def test_other_numbers_that_are_returned_are_refused(number: Any) -> None:
    net = bridge.cell(Gives(number))

    @ms.jit
    def call(x):
        return net(x)

    with pytest.raises(RuntimeError, match=r"a number or text that is returned follows from(?s:.*)in <lambda>"):
        call(ms.Tensor(ARRAYS[0]))


def test_a_float_that_is_returned_is_a_tensor() -> None:
    torch.manual_seed(0)
    module = Tells()
    net = bridge.cell(module)

    @ms.jit
    def call(x):
        return net(x)

    for array in ARRAYS:
        found = call(ms.Tensor(array))
        assert found["value"].dtype == ms.float64
        assert found["value"].item() == found["loss"].item() == net(ms.Tensor(array))["value"]


def drops(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(y, abs(x.sum().item()))


def raises(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y ** x.sum().item()


def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y if f"{x.sum().item():.2f}" else x


def smooths(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(y, (y > 0).float(), label_smoothing=abs(x.mean().item()))


@pytest.mark.parametrize("function", [drops, raises, writes, smooths], ids=name_of)
def test_what_a_graph_does_not_follow_is_refused(function: Any) -> None:
    net = bridge.cell(Scaled(function))

    @ms.jit
    def call(x):
        return net(x)

    with pytest.raises(RuntimeError, match=r"float that depends on data is .* which a graph does not follow") as caught:
        call(ms.Tensor(ARRAYS[0])).asnumpy()
    assert f"in {function.__name__}" in str(caught.value)


def test_a_division_by_zero_is_an_error() -> None:
    net = bridge.cell(Scaled(lambda x, y: y * (1 / x.sum().item())))

    @ms.jit
    def call(x):
        return net(x)

    call(ms.Tensor(ARRAYS[0])).asnumpy()
    with pytest.raises(RuntimeError, match="float division by zero"):
        call(ms.Tensor(np.zeros((3, 4), np.float32))).asnumpy()
    call(ms.Tensor(ARRAYS[0])).asnumpy()


class TakesIntegers(nn.Module):
    """Of tensors of floats, as Python's functions take them."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        length = y.abs().max()
        return x[:, : int(length)].sum() + x[: math.ceil(length / 2), :1].sum() + y * math.floor(length)


class AsksForTruth(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y if y.max() - 2 else x - y


class IsDone(nn.Module):
    """Asks a buffer of a float, as flows do that take their scale from the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("done", torch.tensor(1.0))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x - y if self.done else x.mean(0)


@pytest.mark.parametrize("make", [TakesIntegers, AsksForTruth, IsDone])
def test_python_takes_integers_and_truths_of_tensors_of_floats(make: type[nn.Module]) -> None:
    module = make()
    net, x = bridge.cell(module), ARRAYS[0]
    module.to(torch_device())

    @ms.jit
    def call(x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x, y)

    for y in (np.full((3, 4), 2.7, np.float32), np.full((3, 4), 2, np.float32), np.full((3, 4), 3.2, np.float32)):
        expected = module(on_device(x), on_device(y))
        assert np.array_equal(call(ms.Tensor(x), ms.Tensor(y)).asnumpy(), expected.cpu().numpy())
