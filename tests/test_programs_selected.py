"""Parts of tensors that integers of data choose, in a graph: read, assigned, differentiated."""

from __future__ import annotations

import copy
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from shared import on_device, torch_device
from test_programs_data_sizes import name_of

RNG = np.random.default_rng(1)
ARRAYS = [(RNG.standard_normal((3, 4)).astype(np.float32), RNG.integers(-3, 3, (3, 4))) for _ in range(4)]


def read(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    one = y[i[0, 0]] + y[..., i[0, 1]].sum() + y[1:, i[0, 2]].sum()
    many = y[None, i[1, 0], 1:] * y[i[1, 1], [0, 2, 3]] + y[[0, 1, 0], i[1, 2]] + y[i[1, 3]][1:]
    return one.sum() * many + x.to(torch.int64)[i[2, 0]][:3] + y[y[:, 0] > y.min()][i[2, 1].remainder(2), :3]


def last_step(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    """The last step of each sequence, by its length."""
    lengths = i.abs().sum(1).clamp(1, 4)
    return torch.stack([y[b, lengths[b] - 1] for b in range(3)]) * torch.cat([y[:, n] for n in i.abs()[:, 0]]).sum()


def assigned(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    table = torch.zeros(3, 4, device=x.device)
    table[i[0, 0]] = y[1]
    table[:, i[0, 1]] = y[:, 0].exp()
    table[1:, i[0, 2]] = 2.0
    table[i[1, 0], i[1, 1]] = y[0, 0]
    y = y * 1
    y[i[1, 2]] += y[0] * 3
    y[..., i[1, 3]] *= table[i[2, 0], 0]
    y[i[2, 1]] = x[0].double()
    return table * y


def counted(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    """An integer that is written to after it was used."""
    at = i[0, 0].clone()
    one = y[at]
    at += 1
    return one.sin() + y[at.clamp(-3, 2)].exp()


def of_constants(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    view = y[torch.tensor(1)]
    y = y * 2
    y[torch.tensor(0)].mul_(view)
    return y * y[torch.tensor(-1)]


def with_gradients_inside(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    z = y.square()
    z[i[0, 0]] = y[i[0, 1]] ** 3
    (inner,) = torch.autograd.grad(z[i[0, 2]].sum() + z.sin().sum(), y, create_graph=True)
    return inner.square() + z


class Chooses(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.function = function

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.layer(x), i)


FUNCTIONS = [read, last_step, assigned, counted, of_constants, with_gradients_inside]


@pytest.mark.parametrize("function", FUNCTIONS, ids=name_of)
def test_a_graph_takes_the_parts_that_pytorch_takes(function: Any) -> None:
    torch.manual_seed(0)
    module = Chooses(function)
    own = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    step = ms.jit(bridge.value_and_grad(net, None, net.trainable_params()))
    for x, i in ARRAYS:
        result, gradients = step(ms.Tensor(x), ms.Tensor(i))
        expected = own(on_device(x), on_device(i))
        own_gradients = torch.autograd.grad(expected.sum(), list(own.parameters()))
        np.testing.assert_array_equal(result.asnumpy(), expected.detach().cpu().numpy())
        for one, other in zip(gradients, own_gradients, strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.cpu().numpy())


def test_one_capture_takes_all_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module = Chooses(lambda x, y, i: y[i[0, 0]] * y[:, i[0, 1]].sum())
    net = bridge.cell(module)

    def called(x: ms.Tensor, i: ms.Tensor) -> Any:
        return net(x, i)

    step = ms.jit(called)
    step(*map(ms.Tensor, ARRAYS[0]))
    monkeypatch.setattr("bridge.programs.graph.plan.make", None)
    for x, i in ARRAYS:
        step(ms.Tensor(x), ms.Tensor(i))


def written_in_place(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = y * 1
    y[i[0, 0]].mul_(2)
    return y


def put_elsewhere(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y, z = y * 1, y * 2
    part = y[i[0, 0]]
    part.mul_(2)
    z[i[0, 0]] = part
    return y + z


def used_before_it_is_put(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y, at = y * 1, i[0, 0]
    part = y[at]
    part.mul_(2)
    total = y.sum()
    y[at] = part
    return y + total


def kept_beside_a_write(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = y * 1
    before = y[i[0, 0]]
    y[i[0, 1].remainder(3)] = 0.0
    return y + before


def too_large(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return y[i[0, 0] * 0 + 7]


def with_too_many(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return y[0, i[0, 0], 1]


REFUSED = [
    (written_in_place, ["it writes to a part of a tensor whose place depends on data", "y[i[0, 0]].mul_(2)"]),
    (put_elsewhere, ["it writes to a part of a tensor whose place depends on data"]),
    (used_before_it_is_put, ["it writes to a part of a tensor whose place depends on data", "total = y.sum()"]),
    (kept_beside_a_write, ["it writes to a part of a tensor whose place depends on data", "return y + before"]),
    (too_large, ["index 7 is out of bounds for dimension 0 with size 3", "return y[i[0, 0] * 0 + 7]"]),
    (with_too_many, ["too many indices for tensor of dimension 2", "return y[0, i[0, 0], 1]"]),
]


@pytest.mark.parametrize("function, words", REFUSED, ids=name_of)
def test_what_it_cannot_take_is_an_error(function: Any, words: list[str]) -> None:
    net = bridge.cell(Chooses(function))

    def called(x: ms.Tensor, i: ms.Tensor) -> Any:
        return net(x, i)

    with pytest.raises(Exception) as caught:  # each has PyTorch's class
        ms.jit(called)(*map(ms.Tensor, ARRAYS[0])).asnumpy()
    for word in words:
        assert word in str(caught.value)
