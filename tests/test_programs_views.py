"""A module in a graph whose tensors are views of others: constants that are a part of their memory or lie in it in
another order, and tensors that are conjugate or negative by a mark."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from shared import data, on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4, device=torch_device())


class Transposed(_Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table = on_device(data(5, 4)).t()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(self.layer(x) @ self.table)


class Halves(_Layer):
    """Two buffers in one tensor's memory, which are not in a checkpoint."""

    first: torch.Tensor
    second: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, half in zip(("first", "second"), on_device(data(2, 8)).chunk(2, dim=1), strict=True):
            self.register_buffer(name, half, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.layer(x)
        return made * self.first + made * self.second.exp() + made * self.first[1] * self.second[:, 1:2]


class Expanded(_Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table = on_device(data(1, 4)).expand(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) @ self.table * self.table[1]


class Conjugate(_Layer):
    """Takes weights and their conjugate transpose, and a constant that is conjugate."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.complex(on_device(data(3, 4)), on_device(data(3, 4, seed=1))))
        self.table = self.weight.detach().clone().conj()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.layer(x).to(torch.complex64)
        return torch.view_as_real(made @ self.weight.t() + made @ self.weight.mH + made @ self.table.t())


class Negative(Conjugate):
    """Takes an imaginary part of what is conjugate."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) @ self.weight.conj().imag.t() + self.layer(x) @ self.table.imag.t()


class AsksNegative(Conjugate):
    """Takes a number out of one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) @ self.weight.abs().t() * self.table.imag[1, 2].item()


MODULES = [Transposed, Halves, Expanded, Conjugate, Negative, AsksNegative]


class OfWeights(nn.Module):
    """Has views of a weight and of a buffer that were made before."""

    def __init__(self) -> None:
        super().__init__()
        self.layer: Any = nn.Linear(4, 4, device=torch_device())
        self.shift: Any
        self.register_buffer("shift", torch.ones(2, 4, device=torch_device()))
        weight: Any = self.layer.weight
        self.row, self.column, self.part = weight[0], weight.data[:, 1], [weight.data.view(-1)[2:6]]
        self.of_buffer = self.shift[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shift.mul_(0.5)
        return self.layer(x) * self.column + self.row * self.part[0] + self.of_buffer


def gradients(module: nn.Module, x: np.ndarray) -> Any:
    given = on_device(x, requires_grad=True)
    result = module(given)
    asked = [given, *(weight for weight in module.parameters() if weight.requires_grad)]
    return result, torch.autograd.grad(result, asked, torch.ones_like(result), materialize_grads=True)


def same(found: ms.Tensor, expected: torch.Tensor) -> bool:
    return np.array_equal(found.asnumpy(), expected.detach().resolve_conj().cpu().numpy())


@pytest.mark.parametrize("kind", MODULES)
def test_results_and_gradients_are_pytorchs(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = kind()
    expected, of_all = gradients(module, data(2, 3))
    cell = bridge.cell(module)
    result, (of_x, of_weights) = ms.value_and_grad(cell, 0, cell.trainable_params())(ms.Tensor(data(2, 3)))
    assert same(result, expected)
    assert [same(*pair) for pair in zip((of_x, *of_weights), of_all, strict=True)] == [True] * len(of_all)


@pytest.mark.parametrize("kind", MODULES)
def test_in_one_operator_they_are_too(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = kind()
    _, (_, *of_all) = gradients(module, data(2, 3))
    cell = bridge.cell(module)
    differentiate = bridge.value_and_grad(lambda x: cell(x), None, cell.trainable_params())

    @ms.jit
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    _, of_weights = step(ms.Tensor(data(2, 3)))
    assert [same(*pair) for pair in zip(of_weights, of_all, strict=True)] == [True] * len(of_all)


def test_the_layout_of_a_constant_tells_programs_apart() -> None:
    """The same numbers in another order of memory may be another kernel's, with other bits."""
    torch.manual_seed(0)
    module, other = Transposed(), Transposed()
    other.load_state_dict(module.state_dict())
    other.table = module.table.contiguous()
    for one in (module, other):
        assert same(bridge.cell(one)(ms.Tensor(data(2, 3))), one(on_device(data(2, 3))))


def test_views_of_weights_and_buffers_follow_these() -> None:
    torch.manual_seed(0)
    module, reference = OfWeights(), OfWeights()
    reference.load_state_dict(module.state_dict())
    net, x = bridge.cell(module), data(2, 4)
    own, optimizer = bridge.optim.SGD(net.trainable_params(), 0.1), torch.optim.SGD(reference.parameters(), 0.1)
    differentiate = ms.value_and_grad(net, None, own.parameters)

    @ms.jit
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        result, gradients = differentiate(x)
        return ms.ops.depend(result, own(gradients))

    for turn in range(4):
        result = step(ms.Tensor(x))
        optimizer.zero_grad()
        expected = reference(on_device(x))
        expected.backward(torch.ones_like(expected))
        optimizer.step()
        assert same(result, expected), turn
        for name, tensor in reference.state_dict().items():
            assert torch.equal(module.state_dict()[name], tensor), (turn, name)
        with torch.no_grad():
            for both in (module, reference):
                both.layer.weight.mul_(0.5)


def test_a_view_of_a_weight_is_another_program_than_a_copy() -> None:
    module, other = OfWeights(), OfWeights()
    other.load_state_dict(module.state_dict())
    for one in (module, other):
        one.row = one.column = one.of_buffer = torch.ones(4, device=torch_device())
    other.part = [module.part[0].clone()]
    x = data(2, 4)
    bridge.cell(module)(ms.Tensor(x))
    with torch.no_grad():
        other.layer.weight.add_(1)
        expected = other(on_device(x))
        other.shift.fill_(1)
    assert same(bridge.cell(other)(ms.Tensor(x)), expected)
