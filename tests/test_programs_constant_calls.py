"""Calls of a module in a graph that follow from constants only: they are made once in a process, and every call of the
graph has PyTorch's bits, also where the module writes to what they have made."""

from __future__ import annotations

import copy
from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge._start import start
from bridge.programs.capture import Spec, capture
from bridge.programs.constant_calls import constant_calls
from bridge.programs.listing import Listing, Output
from shared import data, torch_device

SIZE = 6


def turned(x: torch.Tensor) -> torch.Tensor:
    """By angles that follow from places."""
    angles = torch.outer(torch.arange(len(x), device=x.device), 100.0 ** -torch.linspace(0, 1, SIZE, device=x.device))
    return x * angles.cos() + x.flip(-1) * angles.sin()


def mask_is_written(x: torch.Tensor) -> torch.Tensor:
    """A mask that is made of constants, and then has numbers of the argument."""
    mask = torch.ones(len(x), SIZE, device=x.device).tril()
    shown = x + mask
    mask[1] = x[0]
    return shown * mask


def view_is_written(x: torch.Tensor) -> torch.Tensor:
    table = torch.arange(SIZE, dtype=x.dtype, device=x.device).expand(len(x), SIZE).clone()
    table.t()[2].add_(x[:, 1])
    return x * table


def read_before_it_is_written(x: torch.Tensor) -> torch.Tensor:
    """Twice it reads what constants are added to: each time other numbers."""
    table = torch.zeros(SIZE, device=x.device)
    before = x * (table + 1)
    shown = x - table
    table.add_(torch.arange(SIZE, device=x.device))
    return before * shown + x * table


def written_by_constants(x: torch.Tensor) -> torch.Tensor:
    table = torch.zeros(SIZE, device=x.device)
    table[2:4] = 3
    table.mul_(torch.linspace(0, 1, SIZE, device=x.device))
    return x * table.sin()


def draws(x: torch.Tensor) -> torch.Tensor:
    return x * torch.bernoulli(torch.full((len(x), SIZE), 0.5, device=x.device))


def is_a_constant(x: torch.Tensor) -> torch.Tensor:
    """Its result has nothing to do with the argument but its shape."""
    return torch.linspace(0, 1, x.numel(), device=x.device).reshape(x.shape).cos()


def parts_are_views(x: torch.Tensor) -> torch.Tensor:
    first, second = torch.arange(2.0 * SIZE, device=x.device).exp().view(2, SIZE).unbind()
    return x * first - second


def is_selected(x: torch.Tensor) -> torch.Tensor:
    """Its masks are constants, so that the shapes are known."""
    shown = torch.arange(SIZE, device=x.device) > 2
    rows = torch.ones(SIZE, len(x), dtype=torch.bool, device=x.device).triu()
    return x * x[:, shown].mean() + x.t().masked_select(rows).var() + x.t()[rows].sum()


def asks_a_column(x: torch.Tensor) -> torch.Tensor:
    """The number is in a view, whose strides are no contiguous tensor's."""
    table = torch.arange(float(x.numel()), device=x.device).view_as(x)
    return x * table[1:2, 3].item() + x[table.t().nonzero().t()[1]].sum(0)


FUNCTIONS = [
    turned, mask_is_written, view_is_written, read_before_it_is_written, written_by_constants, draws, is_a_constant,
    parts_are_views, is_selected, asks_a_column,
]  # fmt: skip


class Module(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(SIZE, SIZE, device=torch_device()), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.function(self.layer(x))


@pytest.mark.usefixtures("own_programs", "graph_mode")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_call_has_pytorchs_bits(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(0)
    module = Module(function)
    expected = copy.deepcopy(module)
    cell = bridge.cell(module)
    differentiate = ms.value_and_grad(cell, 0, cell.trainable_params())
    for seed in range(4):
        x = data(4, SIZE, seed=seed)
        bridge.manual_seed(seed)
        result, (of_x, of_weights) = differentiate(ms.Tensor(x))
        given = torch.from_numpy(x).to(torch_device()).requires_grad_()
        bridge.manual_seed(seed)
        wanted = expected(given)
        gradients = torch.autograd.grad(wanted, [given, *expected.parameters()], torch.ones_like(wanted))
        for found, tensor in zip((result, of_x, *of_weights), (wanted, *gradients), strict=True):
            assert np.array_equal(found.asnumpy(), tensor.detach().cpu().numpy())


def names(function: Callable[[torch.Tensor], torch.Tensor]) -> tuple[list[str], list[str]]:
    """The calls that are made once, and the others, without autograd's own."""
    start()  # for the bridge's operators, as before each capture
    found = capture(lambda x: [function(x)], [], [Spec((4, SIZE), torch.float32)], torch_device())
    listing = Listing(found.tape, found.inputs, found.forward, [Output([n], found.spec(n)) for n in found.outputs])
    constant = constant_calls(listing)
    both: tuple[list[str], list[str]] = [], []
    for i, call in enumerate(listing.calls):
        name = call.name.removeprefix("aten::").split(".")[0]
        if name != "detach":
            both[i not in constant].append(name)
    return both


def test_tables_are_made_once() -> None:
    once, others = names(turned)
    assert {"arange", "linspace", "pow", "cos", "sin"} <= set(once)
    assert set(others) == {"mul", "flip", "add"}


def test_what_constants_write_to_is_made_once() -> None:
    once, others = names(written_by_constants)
    assert {"zeros", "fill_", "mul_", "sin"} <= set(once) and others == ["mul"]


@pytest.mark.parametrize(
    ("function", "makes_table"),
    [(mask_is_written, "tril"), (view_is_written, "clone"), (read_before_it_is_written, "zeros")],
)
def test_what_others_write_to_is_made_anew(function: Callable[[torch.Tensor], torch.Tensor], makes_table: str) -> None:
    once, others = names(function)
    assert makes_table in others and makes_table not in once


def test_draws_are_made_anew() -> None:
    once, others = names(draws)
    assert once == ["full"] and "bernoulli" in others


def test_large_tables_are_made_anew() -> None:
    """They would stay in memory."""
    once, others = names(lambda x: x + torch.arange(2**20, device=x.device)[:SIZE])
    assert once == [] and "arange" in others


def test_only_what_stays_counts() -> None:
    """A mask whose numbers have a byte each, of a matrix with four."""
    once, others = names(lambda x: x[0, 0] * torch.ones(900, 900, device=x.device).triu(1).bool())
    assert {"ones", "triu", "_to_copy"} <= set(once) and "mul" in others


@pytest.mark.parametrize("numbers", [2**19, 2**25])
def test_tables_from_a_gpus_host_are_made_once(numbers: int) -> None:
    """The GPU would wait for them. On a CPU they are as all others."""
    once, others = names(lambda x: x[0, 0] + torch.ones(numbers).to(x.device))
    is_once = torch_device() != "cpu" and numbers == 2**19
    assert ("ones" in once) is is_once and ("ones" in others) is not is_once
