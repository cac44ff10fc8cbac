"""Backward, and forward and backward in one, in several programs for their memory, as graphs on a GPU have it: all
results and gradients are PyTorch's, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mindspore as ms
import pytest
import torch
from torch import nn

import bridge
from bridge.programs import segments, store
from bridge.programs.calls import draws
from bridge.programs.memory import storage_of
from bridge.programs.plan import Plan
from bridge.torch.nn import functional as F
from shared import data, on_device
from test_programs_parts import Images, UsedTwice, gradients, mlp, split_of, splits

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]


@pytest.fixture
def in_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many programs as there can be, on every device."""
    monkeypatch.setattr(segments, "DEVICES", {"cpu", "cuda"})
    monkeypatch.setattr(segments, "SHORTEST", 2)
    monkeypatch.setattr(segments, "SMALLEST", 0)
    monkeypatch.setattr(segments, "ALLOWED", 0.0)
    monkeypatch.setattr(segments, "ENOUGH", 0.0)


class _Scaled(torch.autograd.Function):
    """Its gradient writes to what it has made."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        found = torch.zeros_like(gradient)
        half = gradient.sin()
        found.add_(half.cos())
        found[1:].mul_(2)
        return found.add_(gradient)


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = mlp(), nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(_Scaled.apply(self.first(x)))


class Slices(nn.Module):
    """Views of a gradient, and sums of several, are used far from where they are made."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.last = nn.Linear(6, 24), nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b, c = self.all(x).chunk(3, -1)
        y = torch.softmax(a @ b.transpose(-2, -1), -1) @ c
        return self.last(torch.cat([y, a, b.t().t()], -1)[:, 4:12]) + self.last.weight.sum(-1)


@pytest.mark.parametrize("by_argument", [False, True], ids=["weights", "all"])
@pytest.mark.parametrize("make", [mlp, Images, UsedTwice, Writes, Slices])
def test_gradients_are_pytorchs(
    make: Callable[[], nn.Module], by_argument: bool, in_many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    module = make()
    [pair] = split_of(module, monkeypatch)
    assert len(pair.backward) > 2
    expected, found = gradients(module, by_argument)
    assert len(expected) == len(found)
    for wanted, got in zip(expected, found, strict=True):
        assert got.asnumpy().tobytes() == wanted.cpu().numpy().tobytes()


@pytest.mark.parametrize("make", [Images, Writes, Slices])
def test_a_program_writes_to_what_it_has_made(
    make: Callable[[], nn.Module], in_many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    [pair] = split_of(make(), monkeypatch)
    for program in pair.backward:
        tensors = program.tape.tensors
        taken = {storage_of(tensors[number]) for number in program.inputs}
        assert taken.isdisjoint(storage_of(tensors[number]) for call in program.calls for number in call.written)
        assert program.outputs


def test_backward_is_one_program_where_the_kernel_frees_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, and where little memory is needed. The argument's gradient is apart."""
    [pair] = split_of(mlp(), monkeypatch)
    assert len(pair.backward) == 2


def test_a_program_ends_where_it_would_need_more_memory_than_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten pairs of calls: each makes a gradient of 40 bytes, and is the last to use 100 bytes that forward saved."""
    saved = [segments._Memory(100, -1, 2 * i + 1) for i in range(10)]
    gradients = [segments._Memory(40, 2 * i, 20) for i in range(10)]
    temporary = [segments._Memory(8, 2 * i, 2 * i + 1) for i in range(10)]
    costs = segments._Costs([*saved, *gradients, *temporary], 20)
    assert costs.pytorchs == 1000 + 40 + 8
    assert costs.of(0, 20) == 1000 + 400 + 8
    assert costs.of(4, 8) == 800 + 80 + 80 + 8
    assert costs.of(1, 3) == 1000 + 40 + 8 + 40 + 8  # it takes the first temporary, and gives the second
    monkeypatch.setattr(segments, "ALLOWED", 1.1)
    monkeypatch.setattr(segments, "SHORTEST", 2)
    cuts = [*range(2, 19), 20]
    assert segments._end(costs, 0, cuts) == 6  # three gradients
    assert segments._end(costs, 6, [cut for cut in cuts if cut > 6]) == 20


class Drops(nn.Module):
    """It draws, and writes to buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.layers, self.last = nn.Linear(6, 6), nn.BatchNorm1d(6), mlp(), nn.Linear(8, 6)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(torch.tanh(self.norm(self.first(x))))
        return self.last(self.drop(self.layers(y)))


class Tied(nn.Module):
    """It uses its weights several times."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = self.second(torch.tanh(self.first(x)))
        return x @ self.first.weight.t() @ self.first.weight


class WritesWeights(Tied):
    """It writes to its weights, and to a tensor that it makes of numbers, and uses them later."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0, 1.0], device=x.device)
        with torch.no_grad():
            self.first.weight.mul_(0.9)
            scale[1:].mul_(0.5)
        return super().forward(super().forward(x) * scale) * scale


class Attends(nn.Module):
    """On a GPU attention gives tensors on the host, which its gradient takes."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.last = nn.Linear(6, 24), nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            heads = self.all(x).view(1, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
            x = self.last(nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))[0]
        return x


Step = Callable[[Any, Any], Any]
MODULES = [mlp, Images, UsedTwice, Tied, Drops, WritesWeights, Attends]
SIZES = {mlp: 8}


def optimizer_of_the_bridge(parameters: Any) -> Any:
    return bridge.optim.SGD(parameters, 0.5)


def optimizer_of_mindspore(parameters: Any) -> Any:
    """It writes to each Parameter as soon as its gradient is there."""
    return ms.nn.SGD(parameters, 0.5)


def batch(make: Any, seed: int) -> tuple[Any, Any]:
    return data(5, 6, seed=seed), data(5, SIZES.get(make, 6), seed=10 + seed)


def trained(make: Any, value_and_grad: Any, make_optimizer: Any) -> list[bytes]:
    """Losses and gradients of three steps, and the weights and buffers after them."""
    torch.manual_seed(0)
    module = make()
    net = bridge.cell(module).set_train()
    optimizer = make_optimizer(net.trainable_params())

    def loss_of(x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return F.mse_loss(net(x), y)

    differentiate = value_and_grad(loss_of, None, net.trainable_params())

    @ms.jit
    def step(x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        loss, found = differentiate(x, y)
        optimizer(found)
        return loss, found

    torch.manual_seed(3)
    results: list[Any] = []
    for seed in range(3):
        loss, found = step(*map(ms.Tensor, batch(make, seed)))
        results += [one.asnumpy() for one in (loss, *found)]
    results += [net.parameters_dict()[name].asnumpy() for name in module.state_dict()]
    return [one.tobytes() for one in results]


def trained_in_pytorch(make: Any) -> list[bytes]:
    torch.manual_seed(0)
    module = make().to(on_device(data(1)).device)
    optimizer = torch.optim.SGD(module.parameters(), 0.5)
    torch.manual_seed(3)
    results: list[Any] = []
    for seed in range(3):
        x, y = map(on_device, batch(make, seed))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()
        results += [one.detach().cpu().numpy().copy() for one in (loss, *(p.grad for p in module.parameters()))]
    results += [tensor.cpu().numpy() for tensor in module.state_dict().values()]
    return [one.tobytes() for one in results]


@pytest.mark.parametrize("make_optimizer", [optimizer_of_the_bridge, optimizer_of_mindspore])
@pytest.mark.parametrize("make", MODULES)
def test_steps_with_forward_and_backward_in_one_are_pytorchs(
    make: Any, make_optimizer: Any, in_many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = splits(monkeypatch)
    assert trained(make, bridge.value_and_grad, make_optimizer) == trained_in_pytorch(make)
    assert len(pairs[0].later) > 2
    for program in pairs[0].later:
        tensors = program.tape.tensors
        taken = {storage_of(tensors[number]) for number in program.inputs}
        assert taken.isdisjoint(storage_of(tensors[number]) for call in program.calls for number in call.written)
        assert not any(map(draws, program.calls))


@pytest.mark.parametrize("make", [Drops, WritesWeights])
def test_optimizers_write_to_weights_after_all_of_backward_has_read_them(make: Any, in_many: None) -> None:
    """Forward runs in order there, because it draws or writes."""
    assert trained(make, ms.value_and_grad, optimizer_of_mindspore) == trained_in_pytorch(make)


def test_arguments_gradients_and_further_results(in_many: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among these are an argument, a weight, a tensor twice, and one that follows from nothing that is given."""
    torch.manual_seed(0)
    module = mlp()
    net = bridge.cell(module)
    scale = ms.Parameter(ms.Tensor(data(6)), name="scale")

    def loss_of(x, y):  # type: ignore[no-untyped-def]
        z = net(bridge.aten.mul(x, scale))
        loss = bridge.aten.mul(F.mse_loss(z, y), 2)
        steps = bridge.aten.sin(bridge.aten.cos(bridge.aten.arange(5, dtype=ms.float32)))
        return loss, x, scale, z, z, bridge.aten.exp(bridge.aten.sin(bridge.aten.cos(steps)))

    pairs = splits(monkeypatch)
    differentiate = bridge.value_and_grad(loss_of, (0, 1), [scale, *net.trainable_params()], has_aux=True)

    @ms.jit
    def call(x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x, y)

    given = batch(mlp, 0)
    (loss, *others), (of_arguments, of_weights) = call(*map(ms.Tensor, given))
    assert len(pairs[0].later) > 2

    x, y, s = (on_device(array).requires_grad_() for array in (*given, data(6)))
    reference = copy.deepcopy(module).to(x.device)
    z = reference(x * s)
    expected = nn.functional.mse_loss(z, y) * 2
    asked = torch.autograd.grad(expected, [x, y, s, *reference.parameters()])
    steps = torch.arange(5.0, device=x.device).cos().sin().cos().sin().exp()
    wanted = [expected, x, s, z, z, steps, *asked]
    for one, other in zip([loss, *others, *of_arguments, *of_weights], wanted, strict=True):
        assert one.asnumpy().tobytes() == other.detach().cpu().numpy().tobytes()


def test_what_needs_little_memory_is_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = splits(monkeypatch)
    trained(mlp, bridge.value_and_grad, optimizer_of_the_bridge)
    assert all(not pair.later for pair in pairs)
    assert not pairs[0].backward


def test_what_has_a_gradient_goes_on_in_backward_only(in_many: None, monkeypatch: pytest.MonkeyPatch) -> None:
    [pair] = split_of(mlp(), monkeypatch)
    assert not pair.later


def test_the_next_cell_takes_the_programs_that_are_kept(in_many: None, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Plan] = []
    keep = store.keep

    def noted(name: str, plan: Plan, origin: Any) -> None:
        kept.append(plan)
        keep(name, plan, origin)

    monkeypatch.setattr(store, "keep", noted)
    pairs = splits(monkeypatch)
    first = trained(Drops, bridge.value_and_grad, optimizer_of_mindspore)
    assert kept[0].later and all(program.changes for program in kept[0].later)
    assert Plan.from_json(kept[0].to_json()) == kept[0]
    assert set(kept[0].files) == {program.path for program in (kept[0].forward, *kept[0].later)}
    pairs.clear()
    assert trained(Drops, bridge.value_and_grad, optimizer_of_mindspore) == first
    assert not pairs


class Selects(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        return y[y > 0].sin().exp().mean()


def test_forward_is_one_program_where_data_decides_sizes(in_many: None, monkeypatch: pytest.MonkeyPatch) -> None:
    net = bridge.cell(Selects())
    pairs = splits(monkeypatch)
    differentiate = bridge.value_and_grad(net, None, net.trainable_params())

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    found = call(ms.Tensor(data(5, 6)))
    expected = differentiate(ms.Tensor(data(5, 6)))
    assert pairs and all(not pair.later for pair in pairs)
    for one, other in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        assert one.asnumpy().tobytes() == other.asnumpy().tobytes()
