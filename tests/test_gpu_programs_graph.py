"""The tests of programs in graph mode on a GPU, where MindSpore's stream and memory are CUDA's."""

import copy
from collections import Counter
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge.primitive import direct
from bridge.primitive.tensors import view_at
from shared import data
from test_programs_graph import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs", "graph_mode")]


STEPS = 6  # of them the first two run call by call, and the next ones record


class Drops(torch.nn.Module):
    """Dropout, in attention too, and statistics that each step changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(5)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.norm(self.first(x)))


class Waits(torch.nn.Module):
    """Its host has to know which rows there are."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(8)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        y[x[:, 0] > 0] = torch.arange(6.0, device=x.device)
        return y


def trained(module: torch.nn.Module, shape: tuple[int, ...], differentiate: Any) -> Counter[str]:
    """Train a module beside PyTorch. Gives the CUDA calls of the last step."""
    reference = copy.deepcopy(module).cuda()
    theirs = torch.optim.SGD(reference.parameters(), 0.1)
    cell: Any = bridge.cell(module)
    optimizer = bridge.optim.SGD(cell.trainable_params(), 0.1)
    value_and_grad = differentiate(cell, None, optimizer.parameters)

    @ms.jit
    def step(x):
        value, gradients = value_and_grad(x)
        return value, optimizer(gradients)

    results: list[ms.Tensor] = []  # kept, so that the next step has results elsewhere
    for seed in range(STEPS):
        x = data(*shape, seed=seed)
        torch.manual_seed(seed)
        theirs.zero_grad()
        expected = reference(torch.from_numpy(x).cuda())
        expected.backward(torch.ones_like(expected))
        theirs.step()
        torch.manual_seed(seed)
        with torch.profiler.profile() as profile:
            results = [*results[-1:], step(ms.Tensor(x))[0]]
            ms.runtime.synchronize()
        assert results[-1].asnumpy().tobytes() == expected.detach().cpu().numpy().tobytes(), seed
        for name, tensor in reference.state_dict().items():
            assert cell.parameters_dict()[name].asnumpy().tobytes() == tensor.cpu().numpy().tobytes(), (seed, name)
    rate = view_at(direct.address(optimizer.learning_rate), (), torch.float32)
    assert rate.device.type == "cpu", "the optimizer's step waits to read it"
    return Counter(event.name for event in profile.events())


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad], ids=["MindSpore's", "in one"])
def test_steps_are_launched_as_recorded(differentiate: Any) -> None:
    torch.manual_seed(0)
    assert trained(Drops(), (4, 5, 6), differentiate)["cudaGraphLaunch"] > 0


def test_a_seed_comes_after_the_draws_before_it() -> None:
    """MindSpore launches a graph on threads of its own, while the caller goes on."""
    cell: Any = bridge.cell(torch.nn.Dropout(0.5))
    big, ones = ms.Tensor(data(2000, 2000)), ms.Tensor(np.ones(64, np.float32))

    @ms.jit
    def draw(x, y):
        y = ms.ops.matmul(y, y)
        return cell(x), ms.ops.matmul(y, y)

    def expected(seed: int) -> np.ndarray:
        torch.manual_seed(seed)
        return torch.nn.functional.dropout(torch.ones(64, device="cuda"), 0.5).cpu().numpy()  # type: ignore[no-any-return]

    wanted = [expected(seed) for seed in range(2)]
    for _ in range(20):
        found = []
        for seed in range(2):
            torch.manual_seed(seed)
            found.append(draw(ones, big)[0])
        assert all(np.array_equal(one.asnumpy(), other) for one, other in zip(found, wanted, strict=True))


def test_what_waits_is_not_recorded() -> None:
    torch.manual_seed(0)
    assert trained(Waits(), (4, 6), bridge.value_and_grad)["cudaGraphLaunch"] == 0
    assert trained(Drops(), (4, 5, 6), bridge.value_and_grad)["cudaGraphLaunch"] > 0
