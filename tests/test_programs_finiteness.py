"""Questions whether numbers are finite, in graphs: they are taken to be, and that is checked."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge.op import devices
from shared import data, on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]


class Clamps(nn.Module):
    """As the layers of DETR."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.drop = nn.ModuleList(nn.Linear(4, 4) for _ in range(5)), nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.drop(layer(x))
            if not torch.isfinite(x).all():
                big = torch.finfo(x.dtype).max - 1000
                x = torch.clamp(x, min=-big, max=big)
        return x


class Replaces(nn.Module):
    """Asks in all ways, and once on the way to an error."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.isnan(x).any() or torch.isinf(x.abs()).any():
            x = torch.nan_to_num(x)
        if not (x == x).all() or torch.isnan(x.sum()):
            x = torch.zeros_like(x)
        if torch.isposinf(x).any() | torch.isneginf(x).any():
            raise ValueError("too large")
        y = x.exp()
        return y if torch.all(torch.isfinite(y).flatten()) else x


def compiled(module: nn.Module) -> Callable[[np.ndarray], Any]:
    cell = bridge.cell(module)

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return cell(x)

    differentiate = ms.jit(ms.value_and_grad(call))

    def run(array: np.ndarray) -> Any:
        torch.manual_seed(1)
        found = differentiate(ms.Tensor(array))
        ms.runtime.synchronize()  # on a GPU the error of a launch comes late
        return found

    return run


@pytest.mark.parametrize("make", [Clamps, Replaces])
def test_finite_numbers_go_pytorchs_way(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    module = make()
    reference = copy.deepcopy(module).to(devices.torch_name(devices.target()))
    x = torch.from_numpy(data(3, 4)).to(devices.torch_name(devices.target())).requires_grad_()
    torch.manual_seed(1)
    expected = reference(x)
    (gradient,) = torch.autograd.grad(expected, x, torch.ones_like(expected))
    for wanted, found in zip((expected, gradient), compiled(module)(data(3, 4)), strict=True):
        assert found.asnumpy().tobytes() == wanted.detach().cpu().numpy().tobytes()


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", [Clamps, Replaces])
def test_others_raise_an_error(make: Callable[[], nn.Module], number: float) -> None:
    run = compiled(make())
    run(data(3, 4))
    array = data(3, 4)
    array[1, 2] = number
    with pytest.raises(RuntimeError, match=r"test_programs_finiteness.*takes all numbers to be finite"):
        run(array)


class Large(nn.Module):
    """A question of numbers that are finite."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2 if (x.abs() == 2).all() else x


def test_other_questions_go_both_ways() -> None:
    run = compiled(Large())
    for x in (data(3, 4), np.full((3, 4), 2, np.float32), np.full((3, 4), np.inf, np.float32)):
        np.testing.assert_array_equal(run(x)[0].asnumpy(), Large()(torch.from_numpy(x)).numpy())


class Named(nn.Module):
    """Finds something by a number in a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scales = nn.Linear(4, 4), {f"scale_{i}": 1.5 * i for i in range(3)}

    def forward(self, x: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scales[f"scale_{which.max()}"]


class Prints(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(f"{x.mean():.0f}")


def test_a_float_of_data_in_a_string_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"depends on data.*(?s:.*)x.mean\(\):.0f"):
        compiled(Prints())(data(3, 4))


class Same(nn.Module):
    """A comparison that holds for NaN alone in no case, and for tensors that are the same."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if (x == x.flip(0)).all() else x


def test_comparing_two_tensors_is_no_question_of_finiteness() -> None:
    run = compiled(Same())
    for x in (data(3, 4), np.ones((3, 4), np.float32), np.full((3, 4), np.nan, np.float32)):
        np.testing.assert_array_equal(run(x)[0].asnumpy(), Same()(torch.from_numpy(x)).numpy())


def test_a_number_of_data_may_stand_in_a_string() -> None:
    torch.manual_seed(0)
    module = Named()
    reference = copy.deepcopy(module).to(devices.torch_name(devices.target()))
    cell = bridge.cell(module)

    @ms.jit
    def run(x, which):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return cell(x, which)

    x = torch.from_numpy(data(3, 4)).to(devices.torch_name(devices.target()))
    for number in (1, 0, 2, 1):
        which = np.array([0, number, 0])
        expected = reference(x, torch.from_numpy(which).to(x.device))
        found = run(ms.Tensor(data(3, 4)), ms.Tensor(which))
        assert found.asnumpy().tobytes() == expected.detach().cpu().numpy().tobytes()


class Observes(nn.Module):
    """As the observers of torch.ao.quantization: the least and the greatest number so far, none at first."""

    least: torch.Tensor
    most: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("least", torch.tensor(float("inf")))
        self.register_buffer("most", torch.tensor(float("-inf")))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        least, most = torch.aminmax(x.detach())
        if not (self.least == float("inf") and self.most == float("-inf")):
            least, most = self.least + 0.1 * (least - self.least), self.most + 0.1 * (most - self.most)
        self.least.copy_(least)
        self.most.copy_(most)
        return (x - self.least) / (self.most - self.least)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_buffer_that_is_not_finite_at_first(is_first: bool) -> None:
    net: Any = bridge.cell(Observes())
    reference: Any = Observes().to(torch_device())
    for seed in range(4):
        ms.set_context(mode=ms.PYNATIVE_MODE if seed == 0 and not is_first else ms.GRAPH_MODE)
        found, expected = net(ms.Tensor(data(3, 4, seed=seed))), reference(on_device(data(3, 4, seed=seed)))
        np.testing.assert_array_equal(found.asnumpy(), expected.cpu().numpy())
        assert net.parameters_dict()["least"].asnumpy() == reference.least.item()
