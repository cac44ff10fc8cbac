"""Programs in graphs whose inputs have sizes that only the run tells: one compilation, PyTorch's bits at every size."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from bridge.programs import graph, plan
from shared import data, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A name for each program that MindSpore's compiler has asked for."""
    found: list[str] = []
    plan = graph.GraphProgram._planned

    def counted(self: Any, *arguments: Any) -> Any:
        found.append(self.name)
        return plan(self, *arguments)

    monkeypatch.setattr(graph.GraphProgram, "_planned", counted)
    return found


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Dropout(0.3), nn.Linear(12, 3))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(32, 5),
    )  # fmt: skip


class GPT(nn.Module):
    """One layer; the positions and the mask follow from the length."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(64, 8)
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, length = tokens.shape
        x = self.words(tokens) + self.places(torch.arange(length, device=tokens.device))
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mask = torch.full((length, length), float("-inf"), device=x.device).triu(1)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        return self.out(x + mixed)


class Mean(nn.Module):
    """A result and a gradient that do not show the size, which both follow from."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean()


class Branches(nn.Module):
    """What PyTorch does follows from the size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2 if x.shape[0] > 3 else x.flip(0) * 3
        return y.tanh() * x.shape[0]


class Crops(nn.Module):
    """To a length, where there is more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :4].tanh()


def numbers(*shape: int) -> torch.Tensor:
    return torch.from_numpy(data(*shape))


def tokens(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 11, shape))


MODULES: list[tuple[Callable[[], nn.Module], list[int | None], list[torch.Tensor]]] = [
    (mlp, [None, 6], [numbers(4, 6), numbers(1, 6), numbers(9, 6)]),
    (cnn, [None, 3, None, None], [numbers(2, 3, 8, 8), numbers(3, 3, 10, 8), numbers(1, 3, 9, 9)]),
    (GPT, [None, None], [tokens(2, 5), tokens(3, 7), tokens(1, 1)]),
    (Mean, [None, 3], [numbers(2, 3), numbers(5, 3)]),
    (Branches, [None], [numbers(5), numbers(2)]),
    (Crops, [2, None], [numbers(2, 9), numbers(2, 3)]),
]


def assert_equal(own: ms.Tensor, expected: torch.Tensor) -> None:
    assert own.asnumpy().shape == tuple(expected.shape)
    assert own.asnumpy().tobytes() == expected.detach().cpu().numpy().tobytes()


@pytest.mark.parametrize("make, shape, inputs", MODULES)
def test_one_compilation_serves_all_sizes(
    make: Callable[[], nn.Module], shape: list[int | None], inputs: list[torch.Tensor], compilations: list[str]
) -> None:
    torch.manual_seed(0)
    device = torch_device()
    module = make()
    reference = copy.deepcopy(module).to(device)
    cell: Any = bridge.cell(module)
    cell.set_train()

    class Step(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.net = cell
            self.weights = ms.ParameterTuple(cell.trainable_params())
            self.grad = ms.grad(self.net, 0 if inputs[0].is_floating_point() else None, self.weights)

        def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return self.grad(x)

    step = Step()
    dtype = ms.float32 if inputs[0].is_floating_point() else ms.int64
    for compiled in (cell, step):
        compiled.set_inputs(ms.Tensor(shape=shape, dtype=dtype))
    for x in inputs:
        own = ms.Tensor(x.numpy())
        moved = x.to(device).requires_grad_(x.is_floating_point())
        torch.manual_seed(1)
        result = reference(moved)
        bridge.manual_seed(1)
        assert_equal(cell(own), result)
        torch.manual_seed(2)
        result = reference(moved)
        asked = [*([moved] if moved.requires_grad else []), *reference.parameters()]
        expected = torch.autograd.grad(result, asked, torch.ones_like(result))
        bridge.manual_seed(2)
        found = step(own)
        flat = [tensor for part in (found if isinstance(found, tuple) else (found,)) for tensor in _flat(part)]
        for tensor, gradient in zip(flat, expected, strict=True):
            assert_equal(tensor, gradient)
    for parameter, tensor in zip(cell.program.state.parameters.values(), _state(reference), strict=True):
        assert_equal(parameter, tensor)
    assert len(compilations) == 2


def check_lengths(step: Callable[..., Any], module: nn.Module, lengths: tuple[int, ...]) -> None:
    """A step that gives the value and the gradients of the input and of all weights has PyTorch's bits."""
    for length in lengths:
        x = torch.from_numpy(data(length, 6)).to(torch_device()).requires_grad_()
        value, (gradient, gradients) = step(ms.Tensor(data(length, 6)))
        expected = module(x)
        assert_equal(value, expected)
        asked = torch.autograd.grad(expected, [x, *module.parameters()], torch.ones_like(expected))
        for own, other in zip([gradient, *gradients], asked, strict=True):
            assert_equal(own, other)


def test_jit_takes_sizes_for_unknown_that_only_the_weights_fit(compilations: list[str]) -> None:
    module = mlp().eval()
    net = bridge.cell(module)
    differentiate = ms.value_and_grad(net, 0, ms.ParameterTuple(net.trainable_params()))

    @ms.jit(dynamic=1)
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    check_lengths(step, module, (4, 7, 5, 9))
    assert len(compilations) == 3


def test_jit_takes_further_sizes_for_unknown(compilations: list[str]) -> None:
    """A second size changes after the first, where no stand-in fits the weights."""
    module = mlp().eval()
    net = bridge.cell(module)

    @ms.jit(dynamic=1)
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    for shape in ((2, 5), (3, 5), (3, 9), (4, 7), (1, 1)):
        x = data(*shape, 6)
        assert_equal(call(ms.Tensor(x)), module(torch.from_numpy(x).to(torch_device())))
    assert len(compilations) == 3


class Questions(nn.Module):
    """Asks for an answer and for a size that data decides, after a layer that only certain sizes fit."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if y.sum() > 0:
            y = y * 2
        return y[y > 0.2]


def test_jit_takes_sizes_for_unknown_of_a_module_that_asks_for_data() -> None:
    module = Questions().to(torch_device())
    net = bridge.cell(module)
    differentiate = ms.value_and_grad(net, 0, ms.ParameterTuple(net.trainable_params()))

    @ms.jit(dynamic=1)
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    check_lengths(step, module, (3, 5, 4, 6, 2))


class Saturates(nn.Module):
    """Takes a part of its rows, or more of them, as `kind` says: from some length on the part has one size."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "first":
            return self.linear(x[:11]).tanh()
        if self.kind == "last":
            return self.linear(x[-5:]).tanh()
        if self.kind == "largest":
            return self.linear(x).sum(1).topk(min(4, len(x))).values.tanh()
        return self.linear(nn.functional.pad(x, (0, 0, 0, max(0, 9 - len(x))))).tanh()


@pytest.mark.parametrize("lengths", [(15, 20, 30, 7, 12, 3), (3, 5, 4, 15, 11, 20)])
@pytest.mark.parametrize("kind", ["first", "last", "largest", "padded"])
def test_jit_takes_sizes_that_end_somewhere(kind: str, lengths: tuple[int, ...]) -> None:
    module = Saturates(kind).to(torch_device())
    net = bridge.cell(module)
    differentiate = ms.value_and_grad(net, 0, ms.ParameterTuple(net.trainable_params()))

    @ms.jit(dynamic=1)
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    check_lengths(step, module, lengths)


def test_programs_that_are_kept_stand_beside_new_ones() -> None:
    module = mlp().eval()
    weights = list(module.parameters())
    for size in (4, 7):  # the second Cell finds programs of the first one's, and needs another
        cell: Any = bridge.cell(module)
        gradient = ms.grad(cell, None, ms.ParameterTuple(cell.trainable_params()))

        class Step(ms.nn.Cell):
            def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
                return gradient(x)  # noqa: B023  # it is compiled at once

        step = Step()
        step.set_inputs(ms.Tensor(shape=[None, 6], dtype=ms.float32))
        x = numbers(size, 6)
        own = step(ms.Tensor(x.numpy()))
        device = weights[0].device
        result = module(x.to(device))
        for tensor, expected in zip(own, torch.autograd.grad(result, weights, torch.ones_like(result)), strict=True):
            assert_equal(tensor, expected)


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _state(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


class Chunks(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.split(4)


def test_a_number_of_results_that_follows_from_a_size_is_refused() -> None:
    cell: Any = bridge.cell(Chunks())
    cell.set_inputs(ms.Tensor(shape=[None], dtype=ms.float32))
    with pytest.raises(RuntimeError, match="follows from a size that is unknown"):
        cell(ms.Tensor(np.ones(8, np.float32)))


class Shifted(nn.Module):
    """As a language model that leaves out the last position."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x[:, :-1]).square().mean()


def test_products_of_what_is_one_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further lengths need no capture."""
    made, make = [0], plan.make

    def counted(*args: Any) -> Any:
        made[0] += 1
        return make(*args)

    monkeypatch.setattr(plan, "make", counted)
    net: Any = bridge.cell(Shifted())
    net.set_inputs(ms.Tensor(shape=[None, None, 4], dtype=ms.float32))
    captures = []
    for step in range(24):
        array = data(3, 50 + 7 * step % 60, 4)
        expected = net.module(torch.from_numpy(array).to(torch_device()))
        np.testing.assert_array_equal(net(ms.Tensor(array)).asnumpy(), expected.detach().cpu().numpy())
        captures.append(made[0])
    assert captures[-1] - captures[12] < 6


class SavesOthers(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh() if x.shape[0] > 3 else x


def test_a_size_whose_program_does_not_fit_is_refused_when_it_is_met() -> None:
    cell: Any = bridge.cell(SavesOthers())
    cell.set_inputs(ms.Tensor(shape=[None], dtype=ms.float32))
    assert_equal(cell(ms.Tensor(numbers(5).numpy())), numbers(5).to(torch_device()).tanh())
    with pytest.raises(RuntimeError, match=r"^SavesOthers::forward: which .*follows from a size that is unknown"):
        cell(ms.Tensor(numbers(2).numpy())).asnumpy()


class Fails(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 4) * 2


def test_an_error_at_a_size_is_pytorchs() -> None:
    cell: Any = bridge.cell(Fails())
    cell.set_inputs(ms.Tensor(shape=[None], dtype=ms.float32))
    assert cell(ms.Tensor(np.ones(8, np.float32))).shape == (2, 4)
    with pytest.raises(RuntimeError, match=r"shape '\[-1, 4\]' is invalid for input of size 7"):
        cell(ms.Tensor(np.ones(7, np.float32))).asnumpy()
    # MindSpore does not run a graph again whose inference has failed; others it does.
    other: Any = bridge.cell(Fails())
    assert other(ms.Tensor(np.ones(4, np.float32))).shape == (1, 4)


class Positions(nn.Module):
    """Has an image beside the positions of its pixels, whose sizes PyTorch finds by the data."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = (torch.linspace(0, 1, size, device=x.device) for size in x.shape[1:3])
        places = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1).sin()
        return self.linear(torch.cat([x, places.expand(x.shape[0], -1, -1, -1)], -1))


def test_four_unknown_sizes_are_not_guessed_large(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = [0]
    make = plan.make

    def measured(function: Any, state: Any, inputs: Any, *others: Any, **named: Any) -> Any:
        largest[0] = max(largest[0], *(math.prod(one.shape) for one in inputs), 0)
        return make(function, state, inputs, *others, **named)

    monkeypatch.setattr(plan, "make", measured)
    module = Positions().to(torch_device())
    net = bridge.cell(module)

    @ms.jit(dynamic=1)
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    for shape in ((2, 8, 8, 1), (2, 9, 10, 1), (3, 8, 8, 1), (4, 7, 9, 1)):
        x = data(*shape)
        expected = module(torch.from_numpy(x).to(torch_device()))
        np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), expected.detach().cpu().numpy())
    assert 100 < largest[0] <= 2**27
