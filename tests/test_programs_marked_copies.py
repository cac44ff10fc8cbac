"""Copies of what a mask marks, in a graph: `x[mask] = y[mask]` needs no size."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from shared import on_device
from test_programs_data_sizes import ARRAYS, Scaled, compare, name_of


def farthest_points(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As PointNet++ samples them."""
    distance = torch.full((6,), 1e10, device=x.device)
    chosen, last = [], torch.zeros((), dtype=torch.int64, device=x.device)
    for _ in range(5):
        chosen.append(y[last])
        new = (y - y[last]).square().sum(1)
        mask = new < distance
        distance[mask] = new[mask]
        last = distance.argmax()
    return torch.stack(chosen) * distance.sum()


def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z, mask = y.square(), x[:, 0] > 0
    z[mask] = y[mask]
    return z * y.t().reshape(6, 4)


def of_its_own(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y, mask = y * 2, x > 0
    y[mask] = y[mask]
    view = y[:, ::2]
    mask = mask[:, ::2]
    view[mask] = y[:, 1::2].exp()[mask]  # which is no copy of a variable
    return y


def negative_zeros(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of which PyTorch makes positive ones where it adds them to zeros."""
    z, mask = y * 1, x > 0
    z[mask] = y[mask]
    return z.sum(0) * torch.tensor(-0.0, device=x.device)


def others(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What is no such copy: of elsewhere, into a dictionary, of fewer elements, used twice."""
    z, mask, table = y * 1, x > 0, {}
    table[mask] = y[mask]
    same = mask.clone()
    z[mask] = y.sin()[same]
    narrow = y[:, :1] * 3
    first = mask[:, 0]
    z[first] = narrow[first]
    z[mask] = kept = y[mask]
    return z * table[mask].sum() + kept.sum()


def with_gradients_inside(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z, mask = y**3, x > 0
    z[mask] = y[mask]
    (inner,) = torch.autograd.grad(z.square().sum(), y, create_graph=True)
    return inner.sin()


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad], ids=["MindSpore's", "in one"])
@pytest.mark.parametrize(
    "function", [farthest_points, rows, of_its_own, negative_zeros, others, with_gradients_inside], ids=name_of
)
def test_copies_have_pytorchs_bits(function: Any, differentiate: Any) -> None:
    torch.manual_seed(0)
    compare(Scaled(function), ARRAYS, differentiate)


class Part(nn.Module):
    most: torch.Tensor


class Keeps(nn.Module):
    """Buffers of its own and of a part."""

    least: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.part = Part()
        self.register_buffer("least", torch.zeros(6, 4))
        self.part.register_buffer("most", torch.zeros(6, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        less, more = x < self.least, x > self.part.most
        self.least[less] = x[less]
        self.part.most[more] = x[more]
        return self.least + self.part.most


def test_buffers_take_copies_without_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.programs.graph.plan.make_count", None)
    own, net = Keeps(), bridge.cell(Keeps())
    own.to(on_device(ARRAYS[0]).device)

    def called(x: ms.Tensor) -> Any:
        return net(x)

    step = ms.jit(called)
    for x in ARRAYS:
        np.testing.assert_array_equal(step(ms.Tensor(x)).asnumpy(), own(on_device(x)).cpu().numpy())
    for name, buffer in own.named_buffers():
        np.testing.assert_array_equal(net.parameters_dict()[name].asnumpy(), buffer.cpu().numpy())


def to_another_dtype(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z, mask = y.double(), x > 0
    z[mask] = y[mask]
    return z


def test_another_dtype_is_pytorchs_error() -> None:
    net = bridge.cell(Scaled(to_another_dtype))

    def called(x: ms.Tensor) -> Any:
        return net(x)

    words = r"(source and destination dtypes match|expected scalar type Float but found Double)"  # on a GPU
    with pytest.raises(RuntimeError, match=words + r"[\s\S]*z\[mask\] = y\[mask\]"):
        ms.jit(called)(ms.Tensor(ARRAYS[0])).asnumpy()
