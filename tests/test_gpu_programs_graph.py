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
from bridge.programs.calls import Refusal
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


class DropsBetweenLayers(torch.nn.Module):
    """A recurrent layer of cuDNN's with dropout, between draws of the generator itself."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.first = torch.nn.Dropout(0.2)
        self.rnn = kind(6, 8, num_layers=3, dropout=0.4, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output, _ = self.rnn(self.first(x))
        return torch.nn.functional.dropout(output, 0.1, self.training)


class DropsInAttention(torch.nn.Module):
    """Attention of cuDNN's with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 96, dtype=torch.float16) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            q, k, v = layer(x).view(2, 16, 3, 2, 16).permute(2, 0, 3, 1, 4)
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
                found = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.3 * self.training)
            x = x + found.transpose(1, 2).reshape(x.shape)
        return x


RECURRENT = {
    "LSTM": lambda: DropsBetweenLayers(torch.nn.LSTM),
    "LSTM, projected": lambda: DropsBetweenLayers(torch.nn.LSTM, proj_size=4, bidirectional=True),
    "GRU": lambda: DropsBetweenLayers(torch.nn.GRU, bias=False),
    "RNN": lambda: DropsBetweenLayers(torch.nn.RNN, nonlinearity="relu"),
}


@pytest.mark.parametrize("name", [*RECURRENT, "attention"])
def test_dropout_of_cudnns(name: str) -> None:
    """From one seed on, with an evaluation among the steps, which MindSpore compiles then."""
    torch.manual_seed(0)
    module, shape = (RECURRENT[name](), (4, 5, 6)) if name in RECURRENT else (DropsInAttention(), (2, 16, 32))
    dtype = next(module.parameters()).dtype
    reference = copy.deepcopy(module).cuda()
    cell: Any = bridge.cell(module)
    weights = cell.trainable_params()
    differentiate = bridge.value_and_grad(lambda x: cell(x).sum(), None, weights)

    @ms.jit
    def step(x):
        return differentiate(x)

    @ms.jit
    def evaluated(x):
        return cell(x)

    torch.manual_seed(3)
    expected = []
    for i in range(STEPS):
        x = torch.from_numpy(data(*shape, seed=i)).to("cuda", dtype)
        loss = reference(x).sum()
        expected.append([loss, *torch.autograd.grad(loss, [*reference.parameters()])])
        if i == 3:
            reference.eval()
            expected.append([reference(x)])
            reference.train()
    torch.manual_seed(3)
    found: list[Any] = []
    for i in range(STEPS):
        x = ms.Tensor.from_numpy(data(*shape, seed=i)).astype(str(dtype).removeprefix("torch."))
        with torch.profiler.profile() as profile:
            loss, gradients = step(x)
            ms.runtime.synchronize()
        found.append([loss, *gradients])
        if i == 3:
            cell.set_train(False)
            found.append([evaluated(x)])
            cell.set_train()
    for own, others in zip(found, expected, strict=True):
        for one, other in zip(own, others, strict=True):
            assert one.asnumpy().tobytes() == other.detach().cpu().numpy().tobytes()
    launches = Counter(event.name for event in profile.events())["cudaGraphLaunch"]
    assert (launches > 0) == (name == "attention"), "a state of PyTorch's may be another one in each step"


def test_a_checkpoint_refuses_dropout_of_cudnns() -> None:
    module = DropsBetweenLayers(torch.nn.LSTM)

    class Checkpointed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=False)  # type: ignore[no-any-return]

    cell: Any = bridge.cell(Checkpointed())
    with pytest.raises(Refusal, match="dropout runs again, as in a checkpoint"):
        ms.value_and_grad(cell, None, cell.trainable_params())(ms.Tensor(data(4, 5, 6)))


def test_a_recorded_program_follows_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA graph has the kernels that were chosen when it was recorded."""
    torch.manual_seed(0)
    module, x = torch.nn.Linear(256, 256), data(64, 256)
    reference = copy.deepcopy(module).cuda()
    cell: Any = bridge.cell(module)

    @ms.jit
    def call(x):
        return cell(x)

    found = set()
    for step in range(16):
        monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", step // 4 % 2 == 0)
        expected = reference(torch.from_numpy(x).cuda()).detach().cpu().numpy()
        assert call(ms.Tensor(x)).asnumpy().tobytes() == expected.tobytes(), step
        found.add(expected.tobytes())
    assert len(found) == 2
