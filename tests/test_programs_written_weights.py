"""Modules that write to their own parameters and buffers, or assign their data."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from shared import data, on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs")]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 3)
        self.mask: torch.Tensor
        self.mean: torch.Tensor
        self.register_buffer("mask", (torch.arange(30.0) % 3 > 0).float().view(5, 6))
        self.register_buffer("mean", torch.full((3,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))  # type: ignore[no-any-return]


class Written(Layers):
    """The gradients need what the weights are once they are written to."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.second.weight.mul_(0.5)
        self.first.weight.data.mul_(self.mask)
        return super().forward(x)


class Scaled(nn.Module):
    """The gradient needs the weight, and no result."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.mul_(0.5)
        return F.linear(x, self.weight)


class Masked(Layers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.first.weight.data *= self.mask
        return super().forward(x)


class Binary(Layers):
    """Its own weights come back after their signs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = [layer.weight.data for layer in (self.first, self.second)]
        for layer in (self.first, self.second):
            layer.weight.data = layer.weight.data.sign()
        y = super().forward(x)
        self.first.weight.data, self.second.weight.data = kept
        return y


class Assigned(Layers):
    """What was there before and what is there now are used both, and the next call begins with the latter."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = super().forward(x * 2) * self.mean
        self.mean.data = 0.9 * self.mean + 0.1 * before.detach().mean(0)
        self.second.weight.data = self.second.weight.data * 0.5
        return before + super().forward(x) * self.mean


class Exchanged(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x) * self.second(x)
        self.first.weight.data, self.second.weight.data = self.second.weight.data, self.first.weight.data
        return y + self.first(x).cos()


def halve(parameters: Iterator[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.data = parameter.data * 0.5


class Elsewhere(Layers):
    """A function outside assigns, and a decorated method, as the encoder of keys in MoCo has it."""

    @torch.no_grad()
    def follow(self) -> None:
        self.mean.data = self.mean * 0.9 + 0.1 * self.second.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        halve(self.first.parameters())
        self.follow()
        return super().forward(x) * self.mean


@pytest.mark.parametrize("make", [Written, Scaled, Masked, Binary, Assigned, Exchanged, Elsewhere])
def test_steps_are_pytorchs(make: Any, context_mode: str) -> None:
    """Results, gradients and state of three steps, and the state that the module has."""
    torch.manual_seed(0)
    module = make()
    reference = copy.deepcopy(module).to(torch_device())
    cell: Any = bridge.cell(module)
    differentiate = ms.value_and_grad(cell, 0, cell.trainable_params())
    for seed in range(3):
        x = on_device(data(4, 6, seed=seed), requires_grad=True)
        expected = reference(x)
        # MindSpore's gradient of a result is a tensor of ones, where a sum's would be one number.
        gradients = torch.autograd.grad(expected, [x, *reference.parameters()], torch.ones_like(expected))
        with torch.no_grad():
            for parameter, gradient in zip(reference.parameters(), gradients[1:], strict=True):
                parameter.sub_(0.5 * gradient)
        found, (of_input, of_weights) = differentiate(ms.Tensor(data(4, 6, seed=seed)))
        np.testing.assert_array_equal(found.asnumpy(), expected.detach().cpu().numpy())
        for own, gradient in zip((of_input, *of_weights), gradients, strict=True):
            np.testing.assert_array_equal(own.asnumpy(), gradient.cpu().numpy())
        for parameter, gradient in zip(cell.trainable_params(), of_weights, strict=True):
            ms.ops.assign_sub(parameter, gradient * 0.5)
        for name, tensor in reference.state_dict().items():
            np.testing.assert_array_equal(cell.parameters_dict()[name].asnumpy(), tensor.cpu().numpy(), err_msg=name)
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(tensor.cpu().numpy(), reference.state_dict()[name].cpu().numpy(), err_msg=name)


class WithAnotherShape(Layers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.data = self.mean.data[:1]
        return super().forward(x) * self.mean


class OfAResult(Layers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        y.data = F.relu(y.data)
        return y


@pytest.mark.parametrize(
    "make, words",
    [(WithAnotherShape, "data of another shape or dtype"), (OfAResult, "neither a parameter nor a persistent buffer")],
)
def test_a_graph_refuses_other_data_in_words(make: Any, words: str, graph_mode: None) -> None:
    module = make()
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(RuntimeError, match=words):
        bridge.cell(module)(ms.Tensor(data(4, 6)))
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(tensor.cpu().numpy(), before[name].cpu().numpy(), err_msg=name)
