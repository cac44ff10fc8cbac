"""Modules whose call replaces parameters, parts or modes are refused in graphs, and stay as they were."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import pytest
import torch
from torch import nn

import bridge
from bridge.programs.calls import Refusal
from shared import data

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]


class Changes(nn.Module):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("count", torch.zeros(3))
        self.scale: nn.Parameter | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(self.b(self.a(x)))
        self.change()
        return y

    def change(self) -> None:
        raise NotImplementedError


class NewParameter(Changes):
    """As the moving averages of a well-known VQ-VAE."""

    def change(self) -> None:
        self.a.weight = nn.Parameter(self.a.weight * 0.5)


class NewParameterAndBuffer(Changes):
    def change(self) -> None:
        self.count = self.count + 1
        self.a.weight = nn.Parameter(self.a.weight * 0.5)


class SwapsParameters(Changes):
    def change(self) -> None:
        self.a.weight, self.b.weight = self.b.weight, self.a.weight


class SwapsParts(Changes):
    def change(self) -> None:
        self.a, self.b = self.b, self.a


class AddsParameter(Changes):
    def change(self) -> None:
        if self.scale is None:
            self.scale = nn.Parameter(torch.ones(3, device=self.count.device))


class ChangesMode(Changes):
    def change(self) -> None:
        self.drop.train(not self.drop.training)


REFUSED = {
    NewParameter: "NewParameter.a.weight",
    NewParameterAndBuffer: "NewParameterAndBuffer.a.weight",
    SwapsParameters: "SwapsParameters.a.weight",
    SwapsParts: "SwapsParts.a",
    AddsParameter: "AddsParameter.scale",
    ChangesMode: "ChangesMode.drop.training",
}


@pytest.mark.parametrize("kind, name", REFUSED.items(), ids=[kind.__name__ for kind in REFUSED])
def test_modules_that_register_are_refused(kind: Any, name: str) -> None:
    module = kind()
    net, x = bridge.cell(module), ms.Tensor(data(2, 3))
    before = dict(module.named_parameters()), dict(module.named_modules())
    with pytest.raises(Refusal, match=rf"{name} is another one after a call"):
        ms.jit(net)(x)
    assert all(module.get_parameter(name) is parameter for name, parameter in before[0].items())
    assert all(module.get_submodule(name) is part for name, part in before[1].items())
    assert module.scale is None and module.drop.training
    ms.set_context(mode=ms.PYNATIVE_MODE)
    assert net(x).shape == (2, 3)


class TakesThemBack(Changes):
    def change(self) -> None:
        self.eval()
        self.train()
        torch.func.functional_call(self.a, {"weight": self.a.weight * 2}, (self.count,))


def test_what_is_as_before_is_taken() -> None:
    assert ms.jit(bridge.cell(TakesThemBack()))(ms.Tensor(data(2, 3))).shape == (2, 3)


class Keeps(nn.Module):
    """Writes to lists and dictionaries that it is given."""

    def forward(self, x: torch.Tensor, found: list[Any], cache: dict[str, Any]) -> torch.Tensor:
        y = x + cache.get("last", 0)
        cache["last"] = y
        found.append(y.sum())
        return y


def test_writes_to_containers_among_the_arguments_are_warned_of() -> None:
    net, x = bridge.cell(Keeps()), ms.Tensor(data(2, 3))
    ms.set_context(mode=ms.PYNATIVE_MODE)
    found: list[Any] = []
    with pytest.warns(UserWarning, match="writes to argument 1, a list") as warned:
        net(x, found, cache={})
    assert not found
    assert "writes to cache, a dict: it has a copy" in str(warned[1].message)
