"""PyNative mode records a function for the arguments whose gradients are asked for, and no others
(`record_only_what_is_asked` in bridge/_mindspore.py)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn, ops

import bridge
from bridge import aten
from shared import data, on_device, torch_device

Module = torch.nn.Module


class Notes(Module):
    """Notes whether its arguments require a gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3)
        self.noted: list[tuple[bool, bool]] = []

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.noted.append((x.requires_grad, y.requires_grad))
        return (self.linear(x) * y).sum()


def with_weights(differentiate: Any, **settings: Any) -> Callable[..., Any]:
    return lambda function, weights: differentiate(function, weights=weights, **settings)


def by_operation(**settings: Any) -> Callable[..., Any]:
    return lambda function, weights: ops.GradOperation(get_by_list=True, **settings)(function, weights)


ASKING = {
    "no argument": (with_weights(ms.value_and_grad, grad_position=None), (False, False)),
    "the first": (with_weights(ms.value_and_grad, grad_position=0), (True, False)),
    "the second": (with_weights(ms.grad, grad_position=1), (False, True)),
    "both": (with_weights(ms.grad, grad_position=(0, 1)), (True, True)),
    "an operation without arguments": (by_operation(), (False, False)),
    "an operation of all": (by_operation(get_all=True), (True, True)),
    "an operation of the first": (lambda function, _: ops.GradOperation()(function), (True, False)),
}


@pytest.mark.parametrize("is_cell", [False, True], ids=["function", "cell"])
@pytest.mark.parametrize("asked", ASKING)
def test_only_what_is_asked_for_requires_a_gradient(asked: str, is_cell: bool) -> None:
    differentiate, expected = ASKING[asked]
    module = Notes()
    cell = bridge.cell(module)

    class Network(nn.Cell):
        def construct(self, x: Any, y: Any) -> Any:
            return cell(ops.mul(x, 2), y)

    function = differentiate(Network() if is_cell else lambda x, y: cell(x * 2, y), cell.trainable_params())
    for _ in range(2):
        function(ms.Tensor(data(2, 3)), ms.Tensor(data(2, 3)))
    assert module.noted == [expected, expected]


def test_an_argument_may_be_asked_for_in_one_call_and_not_in_the_next() -> None:
    module = Notes()
    cell = bridge.cell(module)
    x, y = ms.Tensor(data(2, 3)), ms.Tensor(data(2, 3))
    for grad_position in (0, None, (0, 1), 1, None):
        ms.value_and_grad(cell, grad_position, cell.trainable_params())(x, y=y)
    asked = [(True, False), (False, False), (True, True), (False, True), (False, False)]
    assert module.noted == asked


def test_a_tensor_that_is_given_twice_is_asked_for() -> None:
    x = ms.Tensor(data(2, 3))
    gradient = ms.grad(lambda x, y: (aten.sin(x) * y).sum(), 0)(x, x)
    expected = on_device(data(2, 3), requires_grad=True)
    (torch.sin(expected) * expected).sum().backward()
    assert expected.grad is not None
    np.testing.assert_array_equal(gradient.asnumpy(), expected.grad.cpu().numpy())


def test_a_recording_inside_another_keeps_what_that_one_asks_for() -> None:
    def inner(x: Any, y: Any) -> Any:
        return (x * x * y).sum()

    def outer(x: Any, y: Any) -> Any:
        return (ms.grad(inner, 1)(x, y) * x).sum()

    x, y = ms.Tensor(data(2, 3)), ms.Tensor(data(2, 3))
    np.testing.assert_array_equal(ms.grad(outer, 0)(x, y).asnumpy(), 3 * data(2, 3) ** 2)


class HeadOfFrozen(Module):
    """PyTorch's encoder takes its own way where nothing requires a gradient, which gives zeros for padding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2).requires_grad_(False)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, is_padding: torch.Tensor) -> torch.Tensor:
        self.encoder.eval()
        return self.head(self.encoder(x, src_key_padding_mask=is_padding)).square().mean()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_frozen_encoder_takes_the_way_that_it_takes_in_pytorch() -> None:
    x, is_padding = data(3, 5, 8), np.zeros((3, 5), bool)
    is_padding[0, 3:] = True
    reference = HeadOfFrozen()
    cell = bridge.cell(copy.deepcopy(reference))
    reference.to(torch_device())
    loss, gradients = ms.value_and_grad(cell, None, cell.trainable_params())(ms.Tensor(x), ms.Tensor(is_padding))
    expected = reference(on_device(x), torch.tensor(is_padding, device=torch_device()))
    expected.backward()
    np.testing.assert_array_equal(loss.asnumpy(), expected.detach().cpu().numpy())
    for gradient, parameter in zip(gradients, reference.head.parameters(), strict=True):
        assert parameter.grad is not None
        np.testing.assert_array_equal(gradient.asnumpy(), parameter.grad.cpu().numpy())


class WritesTheTarget(Module):
    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        target -= target.mean()
        return (x - target).square().mean()


def test_a_module_may_write_to_an_argument_that_is_not_asked_for() -> None:
    cell, target = bridge.cell(WritesTheTarget()), ms.Tensor(data(2, 3))
    loss, gradient = ms.value_and_grad(cell, 0)(ms.Tensor(data(2, 3, seed=1)), target)
    x, written = on_device(data(2, 3, seed=1)).requires_grad_(), on_device(data(2, 3))
    expected = WritesTheTarget()(x, written)
    expected.backward()
    assert x.grad is not None
    np.testing.assert_array_equal(loss.asnumpy(), expected.detach().cpu().numpy())
    np.testing.assert_array_equal(gradient.asnumpy(), x.grad.cpu().numpy())
    np.testing.assert_array_equal(target.asnumpy(), written.cpu().numpy())


class Weighted(Module):
    """PyTorch has no derivative of one function, and none of what it writes to a tensor that is given."""

    def __init__(self, is_written: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3)
        self.is_written = is_written

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        if not self.is_written:
            return (self.linear(x) * torch.igamma(weights.abs(), weights.abs())).sum()
        return (self.linear(x) * torch.mul(weights, 2, out=torch.empty_like(weights))).sum()


@pytest.mark.parametrize("is_written", [False, True])
def test_a_graph_says_that_all_arguments_count(is_written: bool) -> None:
    module = Weighted(is_written)
    cell = bridge.cell(copy.deepcopy(module))
    differentiate = ms.value_and_grad(cell, None, cell.trainable_params())
    own = bridge.value_and_grad(cell, None, cell.trainable_params())

    @ms.jit
    def step(x: Any, weights: Any) -> Any:
        return differentiate(x, weights)

    @ms.jit
    def own_step(x: Any, weights: Any) -> Any:
        return own(x, weights)

    x, weights = ms.Tensor(data(2, 3)), ms.Tensor(data(3))
    with pytest.raises(RuntimeError, match=r"all floating-point arguments count.*bridge\.value_and_grad"):
        step(x, weights)
    loss, (gradient, _) = own_step(x, weights)
    module.to(torch_device())
    expected = module(on_device(data(2, 3)), on_device(data(3)))
    expected.backward()
    assert module.linear.weight.grad is not None
    np.testing.assert_array_equal(loss.asnumpy(), expected.detach().cpu().numpy())
    np.testing.assert_array_equal(gradient.asnumpy(), module.linear.weight.grad.cpu().numpy())
