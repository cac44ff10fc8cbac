"""Graphs with objects of Python's in them, as a dictionary that they return: MindSpore makes their kernels when they
run, and infers the operators once more for that."""

from __future__ import annotations

import copy
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import bridge
from bridge import aten
from bridge import nn as tnn
from bridge import torch as T
from bridge.nn import functional as BF
from bridge.optim import AdamW
from shared import on_device, torch_device

X = np.random.default_rng(0).standard_normal((4, 8), np.float32)
LABELS = np.array([0, 2, 1, 1])


def equal(found: ms.Tensor, expected: torch.Tensor) -> None:
    assert isinstance(found, ms.Tensor)
    np.testing.assert_array_equal(found.asnumpy(), expected.detach().cpu().numpy(), strict=True)


def one(x: Any) -> Any:
    return {"sum": aten.sum(x), "mask": aten.gt(x, 0), "half": T.to(x, T.float16)}


def several(x: Any) -> Any:
    values, places = aten.topk(x, 3)
    return {"values": aten.exp(values), "places": places}


def of_data(x: Any) -> Any:
    return {"positive": aten.masked_select(x, aten.gt(x, 0))}


def pieces(x: Any) -> Any:
    first, second = aten.split(x, 2)
    return {"first": aten.sin(first), "second": second}


def after_numpy(x: Any) -> Any:
    return {"exp": aten.exp(ms.Tensor(x.asnumpy() + 1))}


EXPECTED: dict[Any, Any] = {
    one: lambda x: {"sum": x.sum(), "mask": x > 0, "half": x.half()},
    several: lambda x: {"values": torch.topk(x, 3)[0].exp(), "places": torch.topk(x, 3)[1]},
    of_data: lambda x: {"positive": x[x > 0]},
    pieces: lambda x: {"first": x[:2].sin(), "second": x[2:]},
    after_numpy: lambda x: {"exp": (x + 1).exp()},
}


@pytest.mark.parametrize("function", EXPECTED)
def test_a_dictionary_of_results(function: Any) -> None:
    compiled = ms.jit(function)
    for x in (X, X - 1):
        found, expected = compiled(ms.Tensor(x)), EXPECTED[function](on_device(x))
        assert found.keys() == expected.keys()
        for key in expected:
            equal(found[key], expected[key])


@pytest.mark.parametrize("second_order", [False, True])
def test_gradients_in_a_dictionary(second_order: bool) -> None:
    def loss(x):
        return aten.sum(aten.exp(aten.sin(x)))

    def slope(x):
        return aten.sum(aten.mul(ms.grad(loss)(x), x))

    @ms.jit
    def gradient(x):
        return {"gradient": ms.grad(slope if second_order else loss)(x)}

    x = on_device(X, requires_grad=True)
    (expected,) = torch.autograd.grad(x.sin().exp().sum(), x, create_graph=True)
    if second_order:
        (expected,) = torch.autograd.grad((expected * x).sum(), x)
    found = gradient(ms.Tensor(X))["gradient"]
    # MindSpore adds the two parts of a gradient of second order in another order.
    np.testing.assert_allclose(found.asnumpy(), expected.detach().cpu().numpy(), rtol=1e-6 if second_order else 0)


def test_a_training_step_gives_a_dictionary() -> None:
    torch.manual_seed(0)
    module, head = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)), torch.nn.Linear(8, 3)
    net, last = bridge.cell(module), tnn.Linear(8, 3)
    tnn.load_state_dict(last, head.state_dict())
    reference = copy.deepcopy(torch.nn.Sequential(*module, head)).to(torch_device())
    last.update_parameters_name("last.")
    optimizer = AdamW([*net.trainable_params(), *last.trainable_params()], lr=0.1)

    def loss_of(x, labels):
        logits = last(net(x))
        return BF.cross_entropy(logits, labels), logits  # not in a dictionary: MindSpore then takes later weights

    differentiate = ms.value_and_grad(loss_of, None, optimizer.parameters, has_aux=True)

    @ms.jit
    def step(x, labels):
        (loss, logits), gradients = differentiate(x, labels)
        gradients, norm = tnn.utils.clip_grad_norm_(gradients, 1.0)
        optimizer(gradients)
        return loss, {"norm": norm, "accuracy": aten.mean(aten.eq(aten.argmax(logits, 1), labels).float())}

    torch_optimizer = torch.optim.AdamW(reference.parameters(), lr=0.1)
    for _ in range(4):
        loss, more = step(ms.Tensor(X), ms.Tensor(LABELS))
        torch_optimizer.zero_grad()
        logits = reference(on_device(X))
        expected = F.cross_entropy(logits, on_device(LABELS))
        expected.backward()
        norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
        torch_optimizer.step()
        equal(loss, expected)
        equal(more["norm"], norm)
        equal(more["accuracy"], (logits.argmax(1) == on_device(LABELS)).float().mean())
