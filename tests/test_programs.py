"""bridge.cell in PyNative mode: PyTorch's bits for results, gradients and buffers, and the manners of a Cell."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pathlib
import pickle
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn, ops
from torch.nn import functional as F

import bridge
from bridge import aten
from bridge.op import devices
from shared import FailsInBackward, data, on_device, torch_device

Module = torch.nn.Module


def device() -> str:
    return devices.torch_name(devices.target())


def equal(own: ms.Tensor, expected: torch.Tensor) -> bool:
    return np.array_equal(own.asnumpy(), expected.detach().cpu().numpy(), equal_nan=True)


_TABLE = data(3)


class NamesAnArray(Module):
    """Its code names an array of NumPy's, which compares with nothing as a whole."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor(_TABLE, device=x.device)


def test_a_module_may_name_an_array() -> None:
    x = data(2, 3)
    assert equal(bridge.cell(NamesAnArray())(ms.Tensor(x)), NamesAnArray()(on_device(x)))


def mlp() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))


class Convolutional(Module):
    """Batch norm, dropout and writes in place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 4, 3, bias=False)
        self.norm = torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.conv(x)), inplace=True)
        return self.head(F.dropout(y.mean((2, 3)), 0.3, self.training))


class Attention(Module):
    """Views, a tied weight, integers, masks and complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(11, 8)
        self.qkv = torch.nn.Linear(8, 24)
        self.out = torch.nn.Linear(8, 11, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        q, k, v = self.qkv(x).view(*tokens.shape, 3, 2, 4).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.out(x + torch.fft.fft(x).real)


class Recurrent(Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = torch.nn.LSTM(6, 5, num_layers=2, bidirectional=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.lstm(x)


class WithControlFlow(Module):
    """A branch and a loop that depend on data."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4,), 0.9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.abs().max() > 0.5:
            x = x * self.weight
        return x if x.sum() > 0 else -x


NETWORKS = [
    pytest.param(mlp, (data(3, 6),), id="mlp"),
    pytest.param(Convolutional, (data(2, 3, 8, 8),), id="convolutional"),
    pytest.param(Attention, (np.arange(12).reshape(2, 6) % 11,), id="attention"),
    pytest.param(Recurrent, (data(4, 2, 6),), id="recurrent"),
    pytest.param(WithControlFlow, (data(3, 4),), id="control flow"),
    pytest.param(lambda: torch.nn.Bilinear(3, 4, 2), (data(5, 3), data(5, 4)), id="two inputs"),
]


def loss_of(value: Any) -> Any:
    """Of either framework's tensors, by operations that both do alike."""
    tensors = value if isinstance(value, (tuple, list)) else [value]
    return [one for item in tensors for one in (loss_of(item) if isinstance(item, (tuple, list)) else [item])]


class Compared:
    """A module in both frameworks."""

    def __init__(self, module: Module) -> None:
        self.reference: Any = copy.deepcopy(module).to(device())
        self.cell = bridge.cell(module)
        self.weights = [one for one in self.reference.parameters() if one.requires_grad]

    def step(self, *arrays: np.ndarray) -> None:
        """Compare results, gradients of every float input and parameter, and what the module keeps."""
        floats = tuple(i for i, array in enumerate(arrays) if array.dtype == np.float32)
        inputs = [torch.tensor(array, device=device()) for array in arrays]
        for i in floats:
            inputs[i].requires_grad_()
        torch.manual_seed(1)
        expected = loss_of(self.reference(*inputs))
        wanted = [*(inputs[i] for i in floats), *self.weights]
        gradients = torch.autograd.grad(expected, wanted, [torch.ones_like(one) for one in expected])

        bridge.manual_seed(1)
        run = ms.value_and_grad(lambda *x: tuple(loss_of(self.cell(*x))), floats or None, self.cell.trainable_params())
        values, found = run(*map(ms.Tensor, arrays))
        of_inputs, of_weights = found if floats else ((), found)
        of_inputs = of_inputs if isinstance(of_inputs, tuple) else (of_inputs,)
        assert [equal(*pair) for pair in zip(values, expected, strict=True)] == [True] * len(values)
        pairs = list(zip((*of_inputs, *of_weights), gradients, strict=True))
        assert [equal(*pair) for pair in pairs] == [True] * len(pairs)
        self.check_state()

    def check_state(self) -> None:
        state = self.reference.state_dict()
        for name, parameter in self.cell.parameters_dict().items():
            assert equal(parameter, state[name]), name

    def train(self, steps: int, *arrays: np.ndarray) -> None:
        for _ in range(steps):
            self.step(*arrays)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("make", "arrays"), NETWORKS)
def test_networks(make: Callable[[], Module], arrays: tuple[np.ndarray, ...], training: bool) -> None:
    network = make().train(training)
    if devices.target() == "GPU" and not training and any(isinstance(m, torch.nn.RNNBase) for m in network.modules()):
        pytest.skip("PyTorch differentiates cuDNN's recurrent layers in training mode only")
    Compared(network).train(3, *arrays)


@pytest.mark.parametrize(("make", "arrays"), NETWORKS)
def test_forward_without_gradient(make: Callable[[], Module], arrays: tuple[np.ndarray, ...]) -> None:
    both = Compared(make().eval())
    with torch.no_grad():
        expected = loss_of(both.reference(*(torch.tensor(array, device=device()) for array in arrays)))
    found = loss_of(both.cell(*map(ms.Tensor, arrays)))
    assert all(map(equal, found, expected))


def test_nothing_is_recorded_without_gradient() -> None:
    class Asks(Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            flags.append(torch.is_grad_enabled())
            return x * 2

    flags: list[bool] = []
    cell = bridge.cell(Asks())
    x = ms.Tensor(data(3))
    cell(x)
    ms.grad(lambda x: cell(x).sum())(x)
    assert flags == [False, True]
    assert torch.is_grad_enabled()


def test_names_and_ties_are_pytorchs() -> None:
    module = Attention()
    cell = bridge.cell(module)
    assert [one.name for one in cell.get_parameters()] == [name for name, _ in module.named_parameters()]
    assert "out.weight" not in cell.parameters_dict()
    outer = nn.SequentialCell(cell)
    assert next(outer.get_parameters()).name == "0.embedding.weight"


class NamedAsInCells(Module):
    """A Cell has attributes of these names."""

    def __init__(self) -> None:
        super().__init__()
        self.phase, self.program = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.full((3,), 2.0))
        self.cls_name: torch.Tensor
        self.register_buffer("cls_name", torch.full((3,), 3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.phase + self.program * self.cls_name


def test_names_may_be_those_of_a_cells_attributes(mode: Any) -> None:
    module = NamedAsInCells()
    cell, x = bridge.cell(module), data(2, 3)

    def run(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return cell(x)

    assert list(cell.parameters_dict()) == ["phase", "program", "cls_name"]
    cell.set_train(False)  # writes to `phase`
    expected = module.to(device())(on_device(x))
    assert equal(mode(run)(ms.Tensor(x)), expected)


@dataclasses.dataclass
class Output:
    value: Any
    extra: Any = None


def test_nested_arguments_and_results() -> None:
    class Nested(Module):
        def forward(self, pair: Any, *, options: dict[str, Any], scale: float, nothing: None, dtype: Any) -> Any:
            a, b = pair
            assert nothing is None and dtype is torch.float32
            return {"sum": a + b, "list": [a * scale, None, 3], "also": (options["x"], "text"), "dtype": dtype}

    cell = bridge.cell(Nested())
    a, b, x = (ms.Tensor(data(2, i)) for i in (3, 3, 4))
    found = cell((a, b), options={"x": x}, scale=0.5, nothing=None, dtype=ms.float32)
    assert list(found) == ["sum", "list", "also", "dtype"]
    assert np.array_equal(found["sum"].asnumpy(), a.asnumpy() + b.asnumpy())
    assert np.array_equal(found["list"][0].asnumpy(), a.asnumpy() * np.float32(0.5))
    assert found["list"][1:] == [None, 3] and found["also"][1] == "text" and found["dtype"] == ms.float32

    def loss(a: ms.Tensor, b: ms.Tensor) -> ms.Tensor:
        return cell((a, b), options={"x": x}, scale=0.5, nothing=None, dtype=ms.float32)["list"][0].sum()

    gradients = ms.grad(loss, (0, 1))(a, b)
    assert np.array_equal(gradients[0].asnumpy(), np.full((2, 3), 0.5, np.float32))
    assert not gradients[1].asnumpy().any()


@pytest.mark.parametrize("given", [tuple, list, lambda pair: dict(enumerate(pair))], ids=["tuple", "list", "dict"])
def test_what_mindspore_has_marked_is_pythons_own(given: Any) -> None:
    class OfPair(Module):
        def forward(self, pair: Any, scale: Any, is_negative: Any) -> Any:
            assert (type(pair), type(scale), type(is_negative)) == (type(given("ab")), float, bool)
            return (pair[0] * pair[1]).mul(scale).sum() * (-1 if is_negative else 1)

    cell = bridge.cell(OfPair())
    a, b = ms.Tensor(data(2, 3)), ms.Tensor(data(3))
    marked = ms.mutable(given([a, b]))
    scale, is_negative = ms.mutable(0.3), ms.mutable(True)
    inputs = [on_device(array).requires_grad_() for array in (data(2, 3), data(3))]
    expected = OfPair()(given(inputs), 0.3, True)
    assert equal(cell(marked, scale, is_negative), expected)
    assert equal(cell(pair=marked, scale=scale, is_negative=is_negative), expected)
    gradients = ms.grad(lambda a, b: cell(ms.mutable(given([a, b])), scale, is_negative), (0, 1))(a, b)
    for found, one in zip(gradients, torch.autograd.grad(expected, inputs), strict=True):
        assert equal(found, one)


def test_a_dataclass_is_a_result() -> None:
    class Gives(Module):
        def forward(self, x: torch.Tensor) -> Output:
            return Output(x * 2)

    found = bridge.cell(Gives())(ms.Tensor(data(3)))
    assert isinstance(found, Output) and found.extra is None
    assert np.array_equal(found.value.asnumpy(), data(3) * 2)


def test_frozen_parameters_in_both_frameworks() -> None:
    module = mlp()
    module[0].weight.requires_grad_(False)
    both = Compared(module)
    assert [one.name for one in both.cell.trainable_params()] == ["0.bias", "2.weight", "2.bias"]
    both.step(data(3, 6))
    both.cell.parameters_dict()["0.bias"].requires_grad = False
    both.reference[0].bias.requires_grad_(False)
    both.weights = both.weights[1:]
    both.step(data(3, 6))
    assert not module[0].bias.requires_grad
    module[0].weight.requires_grad_(True)
    both.cell(ms.Tensor(data(3, 6)))
    assert both.cell.parameters_dict()["0.weight"].requires_grad


def test_a_graph_sees_what_pytorch_has_set_free() -> None:
    module = torch.nn.Linear(4, 3)
    module.weight.requires_grad_(False)
    cell = bridge.cell(module)
    module.weight.requires_grad_(True)
    gradient = ms.jit(ms.grad(cell, None, [cell.weight]))(ms.Tensor(data(2, 4)))
    assert np.array_equal(gradient[0].asnumpy(), np.broadcast_to(data(2, 4).sum(0), (3, 4)))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("train", "MindSpore's name is set_train"),
        ("half", r"mixed precision is to_float\(mindspore.float16\)"),
        ("in_features", "its `module` does, which is PyTorch's: `.module.in_features`$"),
        ("requires_grad_", "its `module` does, which is PyTorch's: `.module.requires_grad_`$"),
        ("encode", "its `module` does, .*make a Cell of a module whose `forward` calls that"),
    ],
)
def test_names_of_pytorchs_are_said_to_be_elsewhere(name: str, words: str) -> None:
    class Encodes(torch.nn.Linear):
        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return self(x)

    with pytest.raises(AttributeError, match=f"ModuleCell has no {name}: {words}"):
        getattr(bridge.cell(Encodes(2, 2)), name)


@pytest.mark.parametrize(
    ("takes_an_item", "words"),
    [
        (lambda net: net[0], r"ModuleCell has no item 0: its `module` does, .*: `.module\[0\]`"),
        (lambda net: net["a"], r"ModuleCell has no item 'a': its `module` does, .*: `.module\['a'\]`"),
        (list, r"ModuleCell has no item 0: its `module` does"),
        (lambda net: net.module[0] in net, r"ModuleCell has no item 0: its `module` does"),
        (lambda net: bridge.cell(net.module[0])[0], "'ModuleCell' object is not subscriptable$"),
        (lambda net: bridge.nn.Linear(2, 2)[0], "'Linear' object is not subscriptable$"),
    ],
)
def test_items_are_said_to_be_the_modules(takes_an_item: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        takes_an_item(bridge.cell(mlp()))


def test_cells_of_cells_without_items(mode: Callable[..., Any]) -> None:
    class Network(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.CellList([nn.SequentialCell(bridge.cell(mlp())), bridge.cell(torch.nn.ReLU())])

        def construct(self, x: Any) -> Any:
            for part in self.parts:
                if part:
                    x = part(x)
            return x

    x, network = data(3, 6), Network()
    for net in (network, copy.deepcopy(network)):
        assert equal(mode(net)(ms.Tensor(x)), F.relu(mlp().to(device())(on_device(x))))


class HasBatchNorm(Module):
    """Its norm has buffers of floats and of an integer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(6, 4)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)).square().sum()


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad], ids=["MindSpore's", "bridge's"])
def test_who_unfreezes_all_does_not_mean_buffers(mode: Callable[..., Any], differentiate: Any) -> None:
    module = HasBatchNorm()
    net, x = bridge.cell(copy.deepcopy(module)), data(5, 6)
    module.to(device())
    for parameter in net.get_parameters():
        parameter.requires_grad = False
    for parameter in net.get_parameters():
        parameter.requires_grad = True
    optimizer = bridge.optim.SGD(net.trainable_params(), 0.1, weight_decay=0.1)
    expected = torch.optim.SGD(module.parameters(), 0.1, weight_decay=0.1)

    def forward(x: ms.Tensor) -> ms.Tensor:
        return net(x)

    differentiated = differentiate(forward, None, optimizer.parameters)

    @mode
    def step(x: ms.Tensor) -> ms.Tensor:
        loss, gradients = differentiated(x)
        optimizer(gradients)
        return loss

    for _ in range(2):
        loss = module(on_device(x))
        expected.zero_grad()
        loss.backward()
        expected.step()
        assert equal(step(ms.Tensor(x)), loss)
    for name, tensor in module.state_dict().items():
        assert equal(net.parameters_dict()[name], tensor), name
    assert [parameter.name for parameter in net.trainable_params()] == [*dict(module.named_parameters())]


def test_gradients_of_unfrozen_buffers_are_zeros(mode: Callable[..., Any]) -> None:
    net, x = bridge.cell(HasBatchNorm()), ms.Tensor(data(5, 6))
    every = ms.ParameterTuple(net.get_parameters())
    for parameter in every:
        parameter.requires_grad = True

    def forward(x: ms.Tensor) -> ms.Tensor:
        return net(x)

    gradients = mode(ms.grad(forward, None, every))(x)
    are_zero = [not gradient.asnumpy().any() for gradient in gradients]
    assert are_zero == [name not in dict(net.module.named_parameters()) for name, _ in net.parameters_and_names()]


class TrainsABuffer(Module):
    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(3, requires_grad=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.scale).sum()


def test_a_buffer_that_pytorch_trains_is_frozen_and_set_free(mode: Callable[..., Any]) -> None:
    net, x = bridge.cell(TrainsABuffer()), data(2, 3)
    (scale,) = net.trainable_params()
    scale.requires_grad = False
    assert not net.trainable_params() and not net.module.scale.requires_grad
    scale.requires_grad = True
    assert net.trainable_params() == [scale] and net.module.scale.requires_grad

    def forward(x: ms.Tensor) -> ms.Tensor:
        return net(x)

    (gradient,) = mode(ms.grad(forward, None, [scale]))(ms.Tensor(x))
    assert equal(gradient, torch.from_numpy(x).sum(0))


def test_what_is_frozen_in_pytorch_is_not_listed_as_trainable() -> None:
    module = mlp()
    cell = bridge.cell(module)
    around = nn.SequentialCell(nn.ReLU(), cell)
    module[0].requires_grad_(False)
    assert [one.name for one in cell.trainable_params()] == ["1.2.weight", "1.2.bias"]
    module[2].weight.requires_grad_(False)
    assert [one.name for one in around.trainable_params()] == ["1.2.bias"]
    cell.parameters_dict()["1.2.bias"].requires_grad = False
    assert not around.trainable_params() and not module[2].bias.requires_grad
    module[0].bias.requires_grad_(True)
    assert [one.name for one in around.untrainable_params()] == ["1.0.weight", "1.2.weight", "1.2.bias"]


def test_only_what_is_asked_for_is_computed() -> None:
    class Counts(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return x * weight

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            asked.append(tuple(ctx.needs_input_grad))
            return gradient, gradient

    class Counting(Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Counts.apply(x, self.first)

    asked: list[Any] = []
    cell = bridge.cell(Counting())
    x = ms.Tensor(data(3))
    ms.grad(lambda x: ops.stop_gradient(cell(x)).sum() + x.sum())(x)
    assert asked == []  # nothing of the module
    ms.grad(lambda x: cell(ops.stop_gradient(x)).sum(), None, cell.trainable_params())(x)
    assert asked == [(False, True)]


def test_mode_follows_the_cells_around() -> None:
    module = Convolutional().eval()
    cell = bridge.cell(module)
    assert not cell.training
    outer = nn.SequentialCell(cell, nn.ReLU())
    outer.set_train()
    assert module.training and module.norm.training
    outer.set_train(False)
    assert not module.norm.training


def test_an_optimizer_of_mindspores_trains_it() -> None:
    module = mlp()
    cell = bridge.cell(module)
    step = nn.TrainOneStepCell(nn.WithLossCell(cell, nn.MSELoss()), nn.Adam(cell.trainable_params(), 1e-2)).set_train()
    x, y = ms.Tensor(data(3, 6)), ms.Tensor(data(3, 4))
    losses = [float(step(x, y)) for _ in range(20)]
    assert losses[-1] < 0.8 * losses[0]
    for parameter, own in zip(module.parameters(), cell.get_parameters(), strict=True):
        assert equal(own, parameter)
    with torch.no_grad():
        assert equal(cell(x), module(torch.tensor(data(3, 6), device=device())))


def test_model_trains_it() -> None:
    cell = bridge.cell(Convolutional())
    images = [(data(3, 8, 8), np.int32(i % 5)) for i in range(8)]
    dataset = ms.dataset.GeneratorDataset(images, ["image", "label"], shuffle=False).batch(4)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    before = cell.parameters_dict()["conv.weight"].asnumpy().copy()
    ms.Model(cell, loss, nn.Momentum(cell.trainable_params(), 0.1, 0.9)).train(2, dataset)
    assert int(cell.parameters_dict()["norm.num_batches_tracked"].asnumpy()) == 4
    assert not np.array_equal(before, cell.parameters_dict()["conv.weight"].asnumpy())


def test_checkpoints_there_and_back(tmp_path: pathlib.Path) -> None:
    both = Compared(Convolutional().train())
    x = data(2, 3, 8, 8)
    both.step(x)
    ms.save_checkpoint(both.cell, str(tmp_path / "net.ckpt"))
    saved = copy.deepcopy(both.reference.state_dict())
    both.step(x)
    ms.load_param_into_net(both.cell, ms.load_checkpoint(str(tmp_path / "net.ckpt")))
    both.reference.load_state_dict(saved)
    both.step(x)
    state = both.cell.module.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in both.reference.state_dict().items())


@pytest.mark.parametrize(
    "load",
    [
        lambda cell, new: cell.parameters_dict()["0.weight"].set_data(ms.Tensor(new)),
        lambda cell, new: ms.load_param_into_net(cell, {"0.weight": ms.Parameter(new, name="0.weight")}),
    ],
    ids=["set_data", "load_param_into_net"],
)
def test_a_module_has_at_once_what_mindspore_loads(load: Callable[[Any, np.ndarray], Any]) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    cell = bridge.cell(module)
    x = ms.Tensor(data(3, 4))

    @ms.jit
    def in_graph(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return cell(x)

    in_graph(x)
    load(cell, data(4, 4, seed=1))
    assert np.array_equal(module.state_dict()["0.weight"].cpu().numpy(), data(4, 4, seed=1))
    for call in (in_graph, cell):
        assert equal(call(x), module(on_device(data(3, 4))))
    module.load_state_dict({**module.state_dict(), "0.weight": torch.full((4, 4), 2.0)})
    if device() != "cpu":
        torch.cuda.synchronize()  # MindSpore reads on its own stream
    for call in (in_graph, cell):
        assert equal(call(x), module(on_device(data(3, 4))))


def test_what_mindspore_sets_after_pytorch_has_assigned_stays() -> None:
    module = torch.nn.Linear(3, 2)
    cell = bridge.cell(module)
    state = {"weight": torch.full((2, 3), 4.0), "bias": torch.zeros(2)}
    module.load_state_dict({name: tensor.to(device()) for name, tensor in state.items()}, assign=True)
    cell.weight.set_data(ms.Tensor(data(2, 3)))
    assert np.array_equal(module.weight.detach().cpu().numpy(), data(2, 3))
    assert equal(cell(ms.Tensor(data(4, 3))), module(on_device(data(4, 3)))) and (cell.bias.asnumpy() == 0).all()


def test_memory_is_shared_both_ways() -> None:
    module = torch.nn.Linear(4, 4)
    cell = bridge.cell(module)
    x = ms.Tensor(data(2, 4))
    cell(x)
    cell.weight.set_data(ms.Tensor(data(4, 4)))
    cell(x)
    assert equal(cell.weight, module.weight) and np.array_equal(data(4, 4), cell.weight.asnumpy())
    with torch.no_grad():
        module.weight.fill_(2)
    if device() != "cpu":
        torch.cuda.synchronize()  # MindSpore reads on its own stream
    assert (cell.weight.asnumpy() == 2).all()
    module.weight.data = torch.full_like(module.weight, 3)
    cell(x)
    assert (cell.weight.asnumpy() == 3).all()
    module.half()
    with pytest.raises(ValueError, match="weight: PyTorch's tensor has another shape or dtype now"):
        cell(x)


def test_a_buffer_that_is_replaced_is_followed() -> None:
    class Replaces(Module):
        count: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))
            self.register_buffer("scratch", torch.zeros(1), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count = self.count + 1
            return x * self.count[0]

    cell = bridge.cell(Replaces())
    for i in range(1, 4):
        assert np.array_equal(cell(ms.Tensor(data(3))).asnumpy(), data(3) * np.float32(i))
        assert (cell.parameters_dict()["count"].asnumpy() == i).all()
    cell.parameters_dict()["count"].set_data(ms.Tensor([7.0, 7.0]))
    assert np.array_equal(cell(ms.Tensor(data(3))).asnumpy(), data(3) * np.float32(8))
    assert list(cell.parameters_dict()) == ["count"]


def test_called_twice_in_a_step_and_in_two_cells() -> None:
    module = torch.nn.Linear(4, 4)
    reference = copy.deepcopy(module).to(device())
    cell, other = bridge.cell(module), bridge.cell(module)
    assert cell.weight is other.weight
    first, second = nn.SequentialCell(cell, nn.ReLU()), nn.SequentialCell(nn.ReLU(), other)
    weights = cell.trainable_params()
    found = ms.grad(lambda x: second(first(x)), None, weights)(ms.Tensor(data(2, 4)))
    x = torch.tensor(data(2, 4), device=device())
    value = reference(F.relu(F.relu(reference(x))))
    expected = torch.autograd.grad(value, list(reference.parameters()), torch.ones_like(value))
    assert all(map(equal, found, expected))


def test_copies_are_independent() -> None:
    cell = bridge.cell(mlp())
    outer = nn.SequentialCell(cell)
    for copied in (copy.deepcopy(outer)[0], pickle.loads(pickle.dumps(cell))):
        assert [one.name for one in copied.get_parameters()] == [one.name for one in cell.get_parameters()]
        before = cell.parameters_dict()["0.0.weight"].asnumpy().copy()
        copied.parameters_dict()["0.0.weight"].set_data(ms.ops.zeros((8, 6)))
        x = ms.Tensor(data(3, 6))
        assert not np.array_equal(copied(x).asnumpy(), cell(x).asnumpy())
        assert np.array_equal(before, cell.parameters_dict()["0.0.weight"].asnumpy())


def test_four_threads() -> None:
    both = Compared(mlp().eval())
    expected = both.reference(torch.tensor(data(3, 6), device=device()))
    right: list[bool] = []

    def work() -> None:
        for _ in range(50):
            right.append(equal(both.cell(ms.Tensor(data(3, 6))), expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 200


def test_errors_are_pytorchs_and_name_the_line() -> None:
    class Wrong(Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ x  # the line

    both = Compared(mlp())
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied \(2x3 and 2x3\)") as caught:
        ms.grad(lambda x: bridge.cell(Wrong())(x).sum())(ms.Tensor(data(2, 3)))
    assert any("# the line" in (frame.line or "") for frame in traceback.extract_tb(caught.value.__traceback__))
    both.step(data(3, 6))


def test_frozen_parts_stay_in_their_mode() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    module[1].eval()
    for make in (bridge.cell, lambda module: bridge.fuse(bridge.cell(module)), copy.deepcopy):
        made = make(module)
        assert module.training and not module[1].training
        assert made.training
    expected = module.to(device())(on_device(data(5, 3)))
    assert np.array_equal(bridge.cell(module)(ms.Tensor(data(5, 3))).asnumpy(), expected.detach().cpu().numpy())


class Forces(Module):
    """An energy and its gradient, as networks of molecules give them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, positions: torch.Tensor) -> Any:
        positions = positions.detach().requires_grad_()
        energy = self.layer(positions).tanh().sum()
        (gradient,) = torch.autograd.grad(energy, positions, create_graph=self.training)
        return energy, -gradient


@pytest.mark.parametrize("training", [True, False])
def test_a_module_that_differentiates(training: bool) -> None:
    """Also while MindSpore records no gradient."""
    module = Forces().to(device()).train(training)
    net, x = bridge.cell(module), data(5, 3)
    for own, expected in zip(net(ms.Tensor(x)), module(on_device(x)), strict=True):
        assert np.array_equal(own.asnumpy(), expected.detach().cpu().numpy())
    if training:
        (weight, _) = ms.grad(lambda x: net(x)[1].square().sum(), None, net.trainable_params())(ms.Tensor(x))
        module(on_device(x))[1].square().sum().backward()
        assert np.array_equal(weight.asnumpy(), module.layer.weight.grad.cpu().numpy())  # type: ignore[union-attr]


def test_an_exported_program() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).to(device())
    x = on_device(data(5, 3))
    net = bridge.cell(torch.export.export(module, (x,)).module())
    assert np.array_equal(net(ms.Tensor(data(5, 3))).asnumpy(), module(x).detach().cpu().numpy())


def test_an_error_in_backward() -> None:
    both = Compared(mlp())
    with pytest.raises(ZeroDivisionError, match="mine"):
        ms.grad(lambda x: bridge.cell(FailsInBackward())(x).sum())(ms.Tensor(data(3)))
    both.step(data(3, 6))


class WritesItsInput(Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(self.weight).exp()


def test_an_input_is_written() -> None:
    x = ms.Tensor(data(3, 4))
    bridge.cell(WritesItsInput())(x)
    assert np.array_equal(x.asnumpy(), data(3, 4) * 2)


def test_the_gradient_goes_through_an_input_that_is_written() -> None:
    cell, reference = bridge.cell(WritesItsInput()), WritesItsInput().to(device())

    def loss(x: Any, run: Any) -> Any:
        hidden = x * 3
        return (run(hidden) + hidden).sum()

    found = ms.grad(lambda x: loss(x, cell), 0, cell.trainable_params())(ms.Tensor(data(3, 4)))
    x = torch.tensor(data(3, 4), device=device(), requires_grad=True)
    expected = torch.autograd.grad(loss(x, reference), [x, reference.weight])
    assert equal(found[0], expected[0]) and equal(found[1][0], expected[1])


@pytest.mark.parametrize("in_place", [torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.5, inplace=True)], ids=str)
def test_a_network_of_which_each_layer_is_a_cell(in_place: torch.nn.Module) -> None:
    """A layer that writes to its input saves what it has written."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), in_place, torch.nn.Linear(8, 3))
    reference = copy.deepcopy(layers).to(device())
    net = ms.nn.SequentialCell([bridge.cell(layer) for layer in layers]).set_train()
    torch.manual_seed(1)
    found = ms.grad(lambda x: net(x).square().sum(), None, net.trainable_params())(ms.Tensor(data(5, 4)))
    torch.manual_seed(1)
    expected = torch.autograd.grad(reference(on_device(data(5, 4))).square().sum(), [*reference.parameters()])
    assert all(map(equal, found, expected))


def test_an_input_of_the_whole_computation_is_not_written() -> None:
    x = ms.Tensor(data(3, 4))
    cell = bridge.cell(WritesItsInput())
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        ms.grad(lambda x: cell(x).sum())(x)
    assert np.array_equal(x.asnumpy(), data(3, 4))


@pytest.mark.parametrize("which", ["input", "result", "weight"])
def test_a_saved_tensor_that_was_written_to_is_no_gradient(which: str) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Sigmoid())
    module[1].weight.requires_grad_(False)
    cell = bridge.cell(module)

    def loss(x: Any) -> Any:
        x = x * 2
        y = cell(x)
        # MindSpore counts what is written through a view. Of ops.assign and of an item it tells nobody.
        written = {"input": x, "result": y, "weight": cell.parameters_dict()["1.weight"]}[which]
        written.view(written.size, 1).copy_(ms.Tensor(data(written.size, 1)))
        return y.sum()

    x = ms.Tensor(data(3, 4))
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        ms.grad(loss, 0, cell.trainable_params())(x)
    ms.grad(lambda x: cell(x).sum(), 0, cell.trainable_params())(x)  # the next call works


class Signs(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sgn(x)


def test_a_gradient_that_pytorch_gives_no_memory_is_zero() -> None:
    gradient = ms.grad(bridge.cell(Signs()))(ms.Tensor(data(3, 4)))
    assert not gradient.asnumpy().any()


def test_draws_are_pytorchs_and_come_again_in_recompute() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.5), torch.nn.Linear(6, 6))
    both = Compared(module.train())
    both.cell.recompute()
    both.step(data(4, 6))


def test_the_second_order_is_refused() -> None:
    cell = bridge.cell(torch.nn.Tanh())
    with pytest.raises(RuntimeError, match="Tanh: the gradient of a PyTorch module's gradient is not available"):
        ms.grad(ms.grad(lambda x: cell(x).sum()))(ms.Tensor(data(3)))
    assert equal(cell(ms.Tensor(data(3))), torch.tanh(torch.tensor(data(3), device=device())))


def test_hooks_run() -> None:
    module = mlp()
    calls: list[str] = []
    module[0].register_forward_hook(lambda *_: calls.append("forward"))
    module[0].register_full_backward_hook(lambda *_: calls.append("backward"))
    module[2].weight.register_hook(lambda gradient: gradient * 2)
    cell = bridge.cell(module)
    cell.register_forward_hook(lambda cell, inputs, output: calls.append("MindSpore's"))
    twice = ms.grad(cell, None, cell.trainable_params())(ms.Tensor(data(3, 6)))
    plain = bridge.cell(mlp())
    once = ms.grad(plain, None, plain.trainable_params())(ms.Tensor(data(3, 6)))
    assert calls == ["forward", "MindSpore's", "backward"]
    assert np.array_equal(twice[2].asnumpy(), once[2].asnumpy() * 2)


def test_what_is_saved_is_freed() -> None:
    class Remembers(Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.exp()
            alive.append(weakref.ref(y))
            return y * 1

    alive: list[Any] = []
    cell = bridge.cell(Remembers())
    x = ms.Tensor(data(3))

    def unused(x: ms.Tensor) -> ms.Tensor:
        cell(x)
        return x.sum()

    ms.grad(unused)(x)
    ms.grad(lambda x: cell(x).sum())(x)
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


def test_mixed_precision_is_autocast() -> None:
    module = mlp()
    expected = copy.deepcopy(module).to(device())
    with torch.autocast(device().partition(":")[0], torch.bfloat16):
        value = expected(torch.tensor(data(3, 6), device=device()))
    found = nn.SequentialCell(bridge.cell(module)).to_float(ms.bfloat16)(ms.Tensor(data(3, 6)))
    assert found.dtype == ms.bfloat16
    # By the bridge: MindSpore's GPU has no kernel that casts bfloat16.
    assert np.array_equal(aten._to_copy(found, dtype=ms.float32).asnumpy(), value.detach().float().cpu().numpy())


def test_inputs_of_other_strides_and_sizes() -> None:
    both = Compared(mlp())
    x = ms.Tensor(data(6, 3))
    value = both.cell(ms.mint.transpose(x, 0, 1))
    assert equal(value, both.reference(torch.tensor(data(6, 3), device=device()).t()))
    assert both.cell(ms.Tensor(data(0, 6))).shape == (0, 4)


def test_a_result_may_be_an_input_or_a_parameter() -> None:
    class Passes(Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> Any:
            return x, self.weight, x.t()

    cell = bridge.cell(Passes())
    x = ms.Tensor(data(2, 3))
    passed, weight, turned = cell(x)
    assert np.array_equal(passed.asnumpy(), data(2, 3)) and (weight.asnumpy() == 1).all()
    assert np.array_equal(turned.asnumpy(), data(2, 3).T)

    def loss(x: ms.Tensor) -> ms.Tensor:
        passed, weight, turned = cell(x)
        return passed.sum() + 2 * weight.sum() + 3 * turned.sum()

    of_x, (of_weight,) = ms.grad(loss, 0, cell.trainable_params())(x)
    assert (of_x.asnumpy() == 4).all() and (of_weight.asnumpy() == 2).all()


def with_a_cell() -> torch.nn.Module:
    module = torch.nn.Sequential(torch.nn.ReLU())
    module[0].inner = bridge.nn.Linear(2, 2)
    return module


@pytest.mark.parametrize(
    ("module", "error", "words"),
    [
        (torch.nn.functional.relu, TypeError, "bridge.cell takes a torch.nn.Module, not function"),
        (with_a_cell(), TypeError, "bridge.cell takes a module of PyTorch's modules: 0.inner is a Cell, Linear"),
        (torch.nn.Linear, TypeError, "not the class Linear"),
        (bridge.nn.Linear(3, 3), TypeError, "not Linear, which is a Cell"),
        (torch.nn.LazyLinear(3), ValueError, "weight has no shape yet: call the PyTorch module once"),
        (torch.nn.Linear(3, 3, device="meta"), ValueError, "weight has no data: call the PyTorch module's to_empty"),
    ],
)
def test_what_is_no_module_is_refused(module: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        bridge.cell(module)


def test_a_device_is_mindspores() -> None:
    cell = bridge.cell(torch.nn.Linear(3, 3))
    assert cell.to(torch_device()) is cell and cell.to(device=torch.device(torch_device())) is cell
    other = "cuda" if torch_device() == "cpu" else "cpu"
    with pytest.raises(ValueError, match=r"ModuleCell\.to: device .* is not MindSpore's device"):
        cell.to(other)


def test_sparse_results_are_refused() -> None:
    class Sparse(Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to_sparse()

    with pytest.raises(RuntimeError, match="MindSpore has no tensors like this one of PyTorch's"):
        bridge.cell(Sparse())(ms.Tensor(data(3)))


def test_results_elsewhere_are_refused(mode: Any) -> None:
    class Elsewhere(Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to("meta")

    with pytest.raises(RuntimeError, match="PyTorch's device meta"):
        mode(bridge.cell(Elsewhere()))(ms.Tensor(data(3)))
