"""The ones by which PyNative mode begins a gradient (`begin_gradients_with` in bridge/_mindspore.py), and the results
of which it begins none."""

from __future__ import annotations

import copy
import dataclasses
import types
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge import aten
from bridge.op import devices, dtypes
from bridge.primitive import direct
from shared import torch_device


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ones that the bridge makes."""
    aten.relu(ms.Tensor([1.0]))  # the first call in the process prepares it
    found: list[Any] = []
    own = direct.ones_like

    def noted(tensor: Any, on_host: bool) -> Any:
        found.append(own(tensor, on_host))
        return found[-1]

    monkeypatch.setattr(direct, "ones_like", noted)
    return found


@pytest.mark.parametrize(
    "dtype", [ms.float32, ms.float64, ms.float16, ms.bfloat16, ms.complex64, ms.complex128], ids=str
)
@pytest.mark.parametrize("shape", [(), (0, 2), (3,), (2, 33)], ids=str)
def test_the_ones_have_the_dtype_and_the_shape(dtype: Any, shape: tuple[int, ...]) -> None:
    like = aten.to(ms.Tensor(np.zeros(shape, np.float32)), dtypes.to_torch(dtype))
    ones = direct.ones_like(like, devices.target() != "GPU")
    assert (ones.dtype, ones.shape) == (dtype, shape)
    assert (aten.to(ones, torch.complex128).asnumpy() == np.ones(shape)).all()


def test_there_are_none_for_integers() -> None:
    assert direct.ones_like(ms.Tensor([1, 2]), devices.target() != "GPU") is None


def test_a_modules_gradient_begins_with_them(made: list[Any]) -> None:
    torch.manual_seed(0)
    module, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    cell, module = bridge.cell(copy.deepcopy(module)), module.to(torch_device())
    value, gradients = ms.value_and_grad(cell, None, cell.trainable_params())(ms.Tensor(x.numpy()))
    expected = module(x.to(torch_device()))
    expected.backward(torch.ones_like(expected))
    assert len(made) == 1
    np.testing.assert_array_equal(value.asnumpy(), expected.detach().cpu().numpy())
    for gradient, parameter in zip(gradients, module.parameters(), strict=True):
        assert parameter.grad is not None
        np.testing.assert_array_equal(gradient.asnumpy(), parameter.grad.cpu().numpy())


@pytest.mark.parametrize(
    "differentiate",
    [
        lambda f, x: ms.grad(f)(x),
        lambda f, x: ms.value_and_grad(f)(x)[1],
        lambda f, x: ms.grad(f, grad_position=(0,))(x),
        lambda f, x: ms.grad(f, return_ids=True)(x)[1],
    ],
)
def test_mindspores_functions_begin_with_them(made: list[Any], differentiate: Any) -> None:
    found = differentiate(lambda x: ms.ops.exp(x) * 2, ms.Tensor([0.0, 1.0]))
    np.testing.assert_allclose(found.asnumpy(), 2 * np.exp([0.0, 1.0]), rtol=1e-6)  # MindSpore's exp, not PyTorch's
    assert len(made) == 1


@pytest.mark.parametrize("get_all", [False, True])
def test_grad_operation_begins_with_them(get_all: bool, made: list[Any]) -> None:
    found = ms.ops.GradOperation(get_all=get_all)(lambda x: x * x)(ms.Tensor([2.0, 3.0]))
    assert (found[0] if get_all else found).asnumpy().tolist() == [4.0, 6.0]
    drops_result = ms.__version__.startswith("2.8.")  # before it asks for the gradient: then MindSpore makes them
    assert len(made) == (0 if drops_result else 1)


def test_weights_by_position_and_list(made: list[Any]) -> None:
    x, weight = ms.Tensor([2.0, 3.0]), ms.Parameter(ms.Tensor([5.0, 7.0]), name="weight")
    of_input, (of_weight,) = ms.grad(lambda x: x * weight, 0, [weight])(x)
    assert (of_input.asnumpy().tolist(), of_weight.asnumpy().tolist()) == ([5.0, 7.0], [2.0, 3.0])
    assert len(made) == 1


def test_what_has_a_first_gradient_or_several_results_is_left_alone(made: list[Any]) -> None:
    x = ms.Tensor([2.0, 3.0])
    given = ms.ops.GradOperation(sens_param=True)(lambda x: x * x)(x, ms.Tensor([10.0, 100.0]))
    assert given.asnumpy().tolist() == [40.0, 600.0]
    assert ms.grad(lambda x: (x * x, x))(x).asnumpy().tolist() == [5.0, 7.0]
    gradient, (other,) = ms.grad(lambda x: (x * x, x + 1), has_aux=True)(x)
    assert (gradient.asnumpy().tolist(), other.asnumpy().tolist()) == ([4.0, 6.0], [3.0, 4.0])
    assert made == []


def test_a_gradient_of_a_gradient(made: list[Any]) -> None:
    x = ms.Tensor([2.0, 3.0])
    assert ms.grad(ms.grad(lambda x: x * x * x))(x).asnumpy().tolist() == [12.0, 18.0]
    assert made


def test_a_cell_that_records_and_is_not_differentiated_leaves_nothing(made: list[Any]) -> None:
    cell, x = ms.nn.Dense(2, 1), ms.Tensor([[1.0, 2.0]])
    cell.set_grad()
    cell(x)
    found = ms.grad(lambda x: (x * x).sum())(x)
    assert found.asnumpy().tolist() == [[2.0, 4.0]]
    assert [tuple(ones.shape) for ones in made] == [()]


@pytest.mark.parametrize("device", ["GPU", "Ascend"])
def test_mindspore_makes_them_where_the_bridge_has_no_kernels(
    device: str, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "target", lambda: device)
    monkeypatch.setattr(devices, "has_cuda_set", lambda: False)
    assert ms.grad(lambda x: x * x)(ms.Tensor([2.0, 3.0])).asnumpy().tolist() == [4.0, 6.0]
    assert made == []


@pytest.mark.parametrize("other", [np.ones(3, np.float32), np.ones(2, np.float16)], ids=str)
def test_a_call_that_was_recorded_before_is_told_from_later_ones(other: np.ndarray) -> None:
    cell, x = ms.nn.ReLU(), ms.Tensor([1.0, -2.0])
    cell.set_grad()
    kept = cell(x), cell(ms.Tensor(other))
    assert ms.grad(cell)(x).asnumpy().tolist() == [1.0, 0.0]
    del kept


def test_an_error_does_not_reach_the_next_gradient(made: list[Any]) -> None:
    def raising(x: ms.Tensor) -> ms.Tensor:
        raise ValueError("no")

    x = ms.Tensor([2.0, 3.0])
    with pytest.raises(ValueError, match="no"):
        ms.grad(raising)(x)
    assert ms.grad(lambda x: x * x)(x).asnumpy().tolist() == [4.0, 6.0]


def test_a_hook_may_write_to_the_first_gradient() -> None:
    def tripled(module: Any, inputs: Any, outputs: Any) -> Any:
        return (inputs[0].mul_(3),)

    module = torch.nn.Identity()
    module.register_full_backward_hook(tripled)
    cell = bridge.cell(module)
    for _ in range(2):
        assert ms.grad(cell)(ms.Tensor([1.0, 2.0])).asnumpy().tolist() == [3.0, 3.0]


class Gaussian(torch.nn.Module):
    """Its result is an object with PyTorch's tensors."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.distributions.Normal:
        return torch.distributions.Normal(self.linear(x), 1.0)


gaussian = bridge.cell(Gaussian())


def log_prob(x: Any) -> Any:
    return gaussian(x).log_prob(torch.zeros((), device=torch_device())).sum()


def value(x: Any) -> Any:
    return aten.sum(aten.relu(x))


class LogProb(ms.nn.Cell):
    def construct(self, x: Any) -> Any:
        return log_prob(x)


def trained(_: Any) -> Any:
    return ms.nn.TrainOneStepCell(LogProb(), bridge.optim.SGD(gaussian.trainable_params(), 0.1))


@pytest.mark.parametrize(
    "differentiated",
    [
        lambda weights: ms.grad(log_prob),
        lambda weights: ms.value_and_grad(log_prob, None, weights),
        lambda weights: ms.value_and_grad(LogProb(), None, weights),
        lambda weights: ms.value_and_grad(lambda x: (log_prob(x), value(x)), None, weights, has_aux=True),
        lambda weights: ms.value_and_grad(lambda x: (value(x), [log_prob(x)])),
        lambda weights: ms.value_and_grad(lambda x: {"loss": log_prob(x)}),
        lambda weights: ms.ops.GradOperation(get_by_list=True)(log_prob, weights),
        trained,
    ],
)
def test_the_gradient_of_pytorchs_tensor_is_refused(differentiated: Any) -> None:
    weights, x = ms.ParameterTuple(gaussian.trainable_params()), ms.Tensor(np.ones((2, 3), np.float32))
    with pytest.raises(TypeError, match=r"the function gives PyTorch's tensor, .*: take bridge.value_and_grad, or"):
        differentiated(weights)(x)
    np.testing.assert_array_equal(ms.grad(value)(x).asnumpy(), np.ones((2, 3)))  # MindSpore goes on
    assert bridge.value_and_grad(log_prob, None, weights)(x)[1][0].asnumpy().any()


@dataclasses.dataclass
class Found:
    loss: Any
    scores: Any


class Gives(torch.nn.Module):
    """What one of these makes of a layer's result."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.layer, self.make = torch.nn.Linear(3, 2), make

    def forward(self, x: torch.Tensor) -> Any:
        return self.make(self.layer(x))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda y: torch.distributions.Normal(y, 1.0), "torch.distributions.normal.Normal"),
        (lambda y: Found(y.sum(), [y]), "Found"),
        (lambda y: types.SimpleNamespace(loss=y.sum()), "types.SimpleNamespace"),
    ],
)
def test_the_gradient_of_an_object_is_refused(make: Any, kind: str) -> None:
    """MindSpore does not look into it, and would give zeros."""
    net, x = bridge.cell(Gives(make)), ms.Tensor(np.ones((2, 3), np.float32))
    weights = ms.ParameterTuple(net.trainable_params())
    for function in (net, lambda x: [net(x)]):
        with pytest.raises(TypeError, match=rf"the function gives an object of .*{kind}, .*: have the function give"):
            ms.value_and_grad(function, None, weights)(x)


def test_the_gradient_of_what_an_object_holds() -> None:
    net, x = bridge.cell(Gives(lambda y: Found(y.sum(), [y]))), ms.Tensor(np.ones((2, 3), np.float32))
    weights = ms.ParameterTuple(net.trainable_params())
    _, gradients = ms.value_and_grad(lambda x: net(x).loss, None, weights)(x)
    assert [gradient.asnumpy().tolist() for gradient in gradients] == [[[2.0] * 3] * 2, [2.0] * 2]


def test_pytorchs_tensor_may_stand_beside_what_is_differentiated() -> None:
    x = ms.Tensor(np.ones((2, 3), np.float32))
    (_, noted), gradient = ms.value_and_grad(lambda x: (value(x), log_prob(x).detach()))(x)
    assert isinstance(noted, torch.Tensor)
    np.testing.assert_array_equal(gradient.asnumpy(), np.ones((2, 3)))
    assert isinstance(log_prob(x), torch.Tensor)
