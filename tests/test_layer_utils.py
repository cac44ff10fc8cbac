"""torch.nn.utils on layers: bridge.nn.utils."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge import nn as tnn
from shared import data, on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs")]

COPIED: dict[str, Callable[[Any, Any], Any]] = {
    "weight norm": lambda utils, layer: utils.parametrizations.weight_norm(layer, dim=1),
    "spectral norm": lambda utils, layer: utils.parametrizations.spectral_norm(layer),
    "orthogonal": lambda utils, layer: utils.parametrizations.orthogonal(layer),
    "removed": lambda utils, layer: utils.remove_weight_norm(utils.weight_norm(layer)),
}
WITH_HOOKS: dict[str, Callable[[Any, Any], Any]] = {
    "older weight norm": lambda utils, layer: utils.weight_norm(layer),
    "older spectral norm": lambda utils, layer: utils.spectral_norm(layer),
    "pruned": lambda utils, layer: utils.prune.l1_unstructured(layer, "weight", 0.3),
}
ROWS = {**COPIED, **WITH_HOOKS}


@pytest.mark.parametrize("row", ROWS)
def test_a_changed_layer_is_pytorchs(row: str, mode: Callable[..., Any]) -> None:
    torch.manual_seed(3)
    module = torch.nn.Linear(4, 3).to(torch_device())
    layer = tnn.Linear(4, 3)
    layer.load_state_dict(module.state_dict())
    torch.manual_seed(4)
    module = ROWS[row](torch.nn.utils, module)
    bridge.manual_seed(4)
    assert ROWS[row](tnn.utils, layer) is layer
    assert list(layer.state_dict()) == list(module.state_dict())
    x = on_device(data(2, 4), requires_grad=True)

    def loss(x):
        return layer(x).sum()

    def step(x):
        return gradient(x)

    gradient = ms.value_and_grad(loss, 0, layer.trainable_params())
    module(x).sum().backward()
    _, (of_x, of_weights) = mode(step)(ms.Tensor(data(2, 4)))
    expected = [x.grad, *(parameter.grad for parameter in module.parameters())]
    for own, theirs in zip([of_x, *of_weights], expected, strict=True):
        assert theirs is not None and np.array_equal(own.asnumpy(), theirs.cpu().numpy())
    for name, value in module.state_dict().items():  # spectral norm writes to its buffers
        assert torch.equal(layer.state_dict()[name].cpu(), value.cpu())


class Doubled(torch.nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return 2 * weight


def test_an_own_parametrization_of_a_layer_in_a_network() -> None:
    net = tnn.Sequential(tnn.Linear(4, 3))
    before = net(ms.Tensor(data(2, 4))) - net[0].bias
    tnn.utils.parametrize.register_parametrization(net[0], "weight", Doubled())
    assert tnn.utils.parametrize.is_parametrized(net[0])
    assert all(parameter.name.startswith("0.") for parameter in net.get_parameters())
    assert np.allclose((net(ms.Tensor(data(2, 4))) - net[0].bias).asnumpy(), 2 * before.asnumpy())  # MindSpore's minus


def test_a_fused_convolution_is_a_layer() -> None:
    convolution, norm = tnn.Conv2d(3, 4, 3).eval(), tnn.BatchNorm2d(4).eval()
    fused = tnn.utils.fuse_conv_bn_eval(convolution, norm)
    expected = torch.nn.utils.fuse_conv_bn_eval(convolution.module, norm.module)
    x = data(2, 3, 5, 5)
    assert isinstance(fused, tnn.Conv2d)
    assert np.array_equal(fused(ms.Tensor(x)).asnumpy(), expected(on_device(x)).detach().cpu().numpy())


def test_parameters_as_a_vector() -> None:
    layer = tnn.Linear(4, 3)
    parameters = layer.trainable_params()
    vector = tnn.utils.parameters_to_vector(parameters)
    assert np.array_equal(vector.asnumpy(), np.concatenate([p.asnumpy().reshape(-1) for p in parameters]))
    tnn.utils.vector_to_parameters(ms.Tensor(np.arange(15, dtype=np.float32)), parameters)
    assert np.array_equal(layer.weight.asnumpy(), np.arange(12).reshape(3, 4))
    assert np.array_equal(layer.module.get_parameter("bias").detach().cpu().numpy(), [12, 13, 14])


@pytest.mark.parametrize("scale", [0.01, 10.0])
def test_gradients_are_clipped_as_pytorchs(scale: float) -> None:
    gradients = [data(4, 3) * np.float32(scale), data(5, seed=1)]
    own, theirs = [ms.Tensor(gradient) for gradient in gradients], [on_device(gradient) for gradient in gradients]

    def clipped(function: str, given: list[torch.Tensor], *args: Any) -> list[torch.Tensor]:
        holders = [torch.empty_like(gradient) for gradient in given]
        for holder, gradient in zip(holders, given, strict=True):
            holder.grad = gradient.clone()
        getattr(torch.nn.utils, function)(holders, *args)
        return [holder.grad for holder in holders]  # type: ignore[misc]

    norm, expected = tnn.utils.get_total_norm(own), torch.nn.utils.get_total_norm(theirs)
    assert norm.asnumpy() == expected.cpu().numpy()
    found = tnn.utils.clip_grads_with_norm_(own, 1.0, norm)
    for result, wanted in zip(found, clipped("clip_grads_with_norm_", theirs, 1.0, expected), strict=True):
        assert np.array_equal(result.asnumpy(), wanted.cpu().numpy())
    (wanted,) = clipped("clip_grad_norm_", theirs[:1], 1.0)
    assert np.array_equal(tnn.utils.clip_grad_norm_(own[0], 1.0)[0].asnumpy(), wanted.cpu().numpy())
    (wanted,) = clipped("clip_grad_value_", theirs[:1], 0.5)
    assert np.array_equal(tnn.utils.clip_grad_value_(own[0], 0.5).asnumpy(), wanted.cpu().numpy())


def test_gradients_that_are_added_up_in_parameters_are_clipped(mode: Callable[..., Any]) -> None:
    sums = [ms.Parameter(ms.Tensor(data(4, 3)), name=f"sum{i}", requires_grad=False) for i in range(2)]

    def clipped():  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return tnn.utils.clip_grad_norm_(tuple(sums), 0.5)

    found, norm = mode(clipped)()
    expected, wanted = tnn.utils.clip_grad_norm_([ms.Tensor(one.asnumpy()) for one in sums], 0.5)
    assert norm.asnumpy() == wanted.asnumpy()
    for own, other in zip(found, expected, strict=True):
        assert np.array_equal(own.asnumpy(), other.asnumpy())


def test_who_is_given_no_layer_says_so() -> None:
    with pytest.raises(TypeError, match=r"weight_norm takes layers of bridge\.nn"):
        tnn.utils.parametrizations.weight_norm(ms.nn.Dense(3, 4))
    with pytest.raises(AttributeError, match="functions of one module"):
        _ = tnn.utils.prune.global_unstructured


@pytest.mark.parametrize("row", COPIED)
def test_a_changed_layer_is_copied(row: str) -> None:
    layer = COPIED[row](tnn.utils, tnn.Linear(4, 4))
    net = tnn.Sequential(layer, tnn.ReLU())
    x = ms.Tensor(data(2, 4))
    for copied, own in (
        (copy.deepcopy(layer), layer),
        (copy.deepcopy(net), net),
        (copy.deepcopy(copy.deepcopy(net)), net),
    ):
        assert [p.name for p in copied.get_parameters()] == [p.name for p in own.get_parameters()]
        copied.set_train(False)
        own.set_train(False)
        wanted = own(x).asnumpy()
        assert np.array_equal(copied(x).asnumpy(), wanted)
        first = copied.trainable_params()[0]
        first.set_data(first * 2 + 1)
        copied(x)
        assert np.array_equal(own(x).asnumpy(), wanted)


def test_a_layer_with_parametrizations_is_not_pickled() -> None:
    layer = tnn.utils.parametrizations.weight_norm(tnn.Linear(4, 4))  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(layer)
