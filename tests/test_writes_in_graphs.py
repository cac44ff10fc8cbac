"""In a graph, what reads a Parameter after a write to it has the data from after the write: a second step of an
optimizer, an average of weights, a GAN's generator after its discriminator's step."""

from __future__ import annotations

import copy
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn, ops
from torch.nn import functional as F

import bridge
from bridge import aten, optim
from bridge import nn as tnn
from bridge.nn import functional as BF
from shared import on_device, torch_device

X = np.random.default_rng(0).standard_normal((4, 8), np.float32)
LABELS = np.array([0, 2, 1, 1])


def mlp() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh(), torch.nn.Linear(16, 3)
    )


def equal(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found.asnumpy(), expected.detach().cpu().numpy())


def torch_step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad])
def test_several_steps_and_an_average_of_weights(differentiate: Any) -> None:
    module = mlp()
    own = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    optimizer = optim.AdamW(net.trainable_params(), lr=0.1)
    weights = ms.ParameterTuple(net.trainable_params())
    averages = ms.ParameterTuple([ms.Parameter(p.asnumpy(), name=f"average.{p.name}") for p in weights])

    def loss_of(x, labels):
        return BF.cross_entropy(net(x), labels)

    gradients_of = differentiate(loss_of, None, optimizer.parameters)

    @ms.jit
    def steps(x, labels):
        losses = ()
        for _ in range(3):
            loss, gradients = gradients_of(x, labels)
            optimizer(gradients)
            losses += (loss,)
        for average, weight in zip(averages, weights):  # noqa: B905  # MindSpore compiles it
            ops.assign(average, aten.lerp(average, weight, 0.1))
        return losses

    torch_optimizer = torch.optim.AdamW(own.parameters(), lr=0.1)
    expected = [parameter.detach().clone() for parameter in own.parameters()]
    for _ in range(3):
        for found in steps(ms.Tensor(X), ms.Tensor(LABELS)):
            equal(found, torch_step(torch_optimizer, F.cross_entropy(own(on_device(X)), on_device(LABELS))))
        for average, one, parameter in zip(averages, expected, own.parameters(), strict=True):
            equal(average, one.lerp_(parameter.detach(), 0.1))
    for name, buffer in own.named_buffers():
        equal(net.parameters_dict()[name], buffer)


@pytest.mark.parametrize("own_optimizer", [False, True])
def test_a_gan_steps_in_one_graph(own_optimizer: bool) -> None:
    torch.manual_seed(0)
    modules = [
        torch.nn.Linear(4, 8),
        torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)),
    ]
    torch_generator, torch_discriminator = (copy.deepcopy(module).to(torch_device()) for module in modules)
    generator, discriminator = map(bridge.cell, modules)
    generator.update_parameters_name("generator.")
    discriminator.update_parameters_name("discriminator.")
    kind: Any = nn.SGD if own_optimizer else optim.SGD
    first, second = kind(discriminator.trainable_params(), 0.5), optim.SGD(generator.trainable_params(), 0.5)

    def discriminator_loss(x, noise):
        return aten.sub(aten.mean(discriminator(generator(noise))), aten.mean(discriminator(x)))

    def generator_loss(noise):
        return aten.neg(aten.mean(discriminator(generator(noise))))

    of_first = ms.value_and_grad(discriminator_loss, None, discriminator.trainable_params())
    of_second = ms.value_and_grad(generator_loss, None, generator.trainable_params())

    @ms.jit
    def step(x, noise):
        loss, gradients = of_first(x, noise)
        first(gradients)
        other, gradients = of_second(noise)
        second(gradients)
        return loss, other

    torch_first = torch.optim.SGD(torch_discriminator.parameters(), 0.5)
    torch_second = torch.optim.SGD(torch_generator.parameters(), 0.5)
    noise = X[:, :4]
    for _ in range(3):
        found = step(ms.Tensor(X), ms.Tensor(noise))
        fake = torch_discriminator(torch_generator(on_device(noise)).detach()).mean()
        expected = torch_step(torch_first, fake - torch_discriminator(on_device(X)).mean())
        other = torch_step(torch_second, -torch_discriminator(torch_generator(on_device(noise))).mean())
        # MindSpore adds the gradients of a module's two calls in another order, and has an optimizer of its own.
        for one, two in zip(found, (expected, other), strict=True):
            np.testing.assert_allclose(one.asnumpy(), two.detach().cpu().numpy(), rtol=1e-5)


def test_mindspores_cells_see_a_step() -> None:
    net = nn.Dense(8, 3)
    own = torch.nn.Linear(8, 3, device=torch_device())
    own.load_state_dict({name: on_device(p.asnumpy()) for name, p in net.parameters_dict().items()})
    optimizer = optim.SGD(net.trainable_params(), 0.5)

    def loss_of(x):
        return ops.sum(ops.square(net(x)))

    gradients_of = ms.value_and_grad(loss_of, None, optimizer.parameters)

    @ms.jit
    def step(x):
        first, gradients = gradients_of(x)
        optimizer(gradients)
        return first, gradients_of(x)[0]

    found = step(ms.Tensor(X / 8))
    torch_optimizer = torch.optim.SGD(own.parameters(), 0.5)
    expected = torch_step(torch_optimizer, own(on_device(X / 8)).square().sum())
    # MindSpore's matrix product rounds otherwise.
    np.testing.assert_allclose(found[0].asnumpy(), expected.detach().cpu().numpy(), rtol=1e-5)
    np.testing.assert_allclose(
        found[1].asnumpy(), own(on_device(X / 8)).square().sum().detach().cpu().numpy(), rtol=1e-5
    )


class Own(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(X), name="weight")

    def construct(self, x):
        return aten.mul(x, self.weight)


@pytest.mark.parametrize("make", [Own, lambda: bridge.fuse(Own())])
def test_a_write_between_two_calls(make: Any) -> None:
    net = make()
    weight = net.trainable_params()[0]

    @ms.jit
    def calls(x):
        first = net(x)
        ops.assign_add(weight, x)
        return first, net(x)

    expected = on_device(X)
    for _ in range(2):
        first, second = calls(ms.Tensor(X))
        equal(first, on_device(X) * expected)
        expected = expected + on_device(X)
        equal(second, on_device(X) * expected)


def test_a_buffer_that_a_module_writes_to_may_be_written_between() -> None:
    module = mlp()
    own = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    mean = net.parameters_dict()["1.running_mean"]

    @ms.jit
    def calls(x):
        first = net(x)
        ops.assign(mean, ops.zeros_like(mean))
        return first, net(x)

    found = calls(ms.Tensor(X))
    equal(found[0], own(on_device(X)))
    own.get_buffer("1.running_mean").zero_()
    equal(found[1], own(on_device(X)))
    equal(mean, own[1].running_mean)
