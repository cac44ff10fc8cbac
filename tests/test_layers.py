"""PyTorch's layers as Cells: bridge.nn."""

from __future__ import annotations

import collections
import copy
import functools
import inspect
import operator
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn

import bridge
from bridge import aten, optim
from bridge import nn as tnn
from bridge import torch as T
from bridge.primitive.tensors import torch_view
from shared import data, on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs")]


def assert_equal(own: ms.Tensor, expected: Any) -> None:
    assert np.array_equal(own.asnumpy(), expected.detach().cpu().numpy())


def seeded(make: Callable[[], Any]) -> Any:
    torch.manual_seed(3)
    return make()


def in_modes(net: Any, *inputs: np.ndarray) -> Iterator[ms.Tensor]:
    for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
        ms.set_context(mode=mode)
        yield net(*map(ms.Tensor, inputs))


def test_every_class_of_torch_nn_is_here_or_has_a_sentence() -> None:
    for name, value in vars(torch.nn).items():
        if inspect.isclass(value) and issubclass(value, torch.nn.Module):
            try:
                assert issubclass(getattr(tnn, name), nn.Cell)
            except AttributeError as error:
                assert ": " in str(error), name
    with pytest.raises(AttributeError, match=r"Linaer, and neither has the installed torch\.nn"):
        _ = tnn.Linaer


def test_classes_derive_as_pytorchs() -> None:
    assert issubclass(tnn.LSTM, tnn.RNNBase) and issubclass(tnn.Linear, tnn.Module)
    assert "in_features" in inspect.signature(tnn.Linear).parameters
    assert "https://docs.pytorch.org" in (tnn.Linear.__doc__ or "")


ROWS: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "linear": (lambda lib: lib.Linear(3, 4), (data(2, 3),)),
    "convolution": (lambda lib: lib.Conv2d(3, 4, 3, padding="same", padding_mode="reflect"), (data(2, 3, 5, 5),)),
    "attention in layers": (
        lambda lib: lib.TransformerEncoder(lib.TransformerEncoderLayer(8, 2, 16, 0.0, activation=lib.GELU()), 2),
        (data(4, 2, 8),),
    ),
    "embedding": (lambda lib: lib.Embedding(7, 4, padding_idx=1), (np.array([[1, 2], [3, 6]]),)),
    "sequence": (lambda lib: lib.Sequential(lib.Linear(3, 4), lib.ReLU(), lib.Linear(4, 2)), (data(2, 3),)),
    "named sequence": (
        lambda lib: lib.Sequential(collections.OrderedDict(a=lib.Linear(3, 4), b=lib.Tanh())), (data(2, 3),)
    ),
    "loss with weights": (
        lambda lib: lib.CrossEntropyLoss(
            weight=torch.arange(1.0, 5.0) if lib is torch.nn else ms.Tensor(np.arange(1.0, 5.0, dtype=np.float32)),
            label_smoothing=0.1,
        ),
        (data(3, 4), np.array([0, 3, 1])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_initial_values_results_and_names(row: str) -> None:
    make, inputs = ROWS[row]
    module, layer = seeded(lambda: make(torch.nn)), seeded(lambda: make(tnn))
    state = layer.state_dict()
    assert list(state) == list(module.state_dict())
    assert all(torch.equal(state[name].cpu(), value) for name, value in module.state_dict().items())
    assert repr(layer) == repr(module)
    module.to(torch_device())
    for found in in_modes(layer, *inputs):
        assert_equal(found, module(*map(on_device, inputs)))


def test_a_seed_of_mindspores_is_pytorchs() -> None:
    for seed in (ms.set_seed, ms.manual_seed, bridge.manual_seed):
        seed(5)
        layer = tnn.Linear(3, 4)
        torch.manual_seed(5)
        assert_equal(layer.weight, torch.nn.Linear(3, 4).weight)


class Block(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv = tnn.Conv2d(3, 4, 3, bias=False)
        self.norm = tnn.BatchNorm2d(4)
        self.own = nn.ReLU()
        self.mixed = tnn.Sequential(nn.Flatten(), tnn.Linear(36, 5), tnn.Dropout(0.5))

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.mixed(self.own(self.norm(self.conv(x))))


class TorchBlock(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, bias=False)
        self.norm = torch.nn.BatchNorm2d(4)
        self.mixed = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 5), torch.nn.Dropout(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mixed(self.norm(self.conv(x)).relu())


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_layers_of_both_kinds_train_together(mode: int) -> None:
    module, net = seeded(TorchBlock).to(torch_device()), seeded(Block)
    assert [p.name for p in net.trainable_params()] == [name for name, _ in module.named_parameters()]
    ms.set_context(mode=mode)
    net.set_train()

    def loss(x: ms.Tensor) -> ms.Tensor:
        return net(x).sum()

    gradient = ms.value_and_grad(loss, 0, net.trainable_params())
    x = on_device(data(2, 3, 5, 5), requires_grad=True)
    torch.manual_seed(1)
    module(x).sum().backward()
    bridge.manual_seed(1)
    _, (of_input, of_weights) = gradient(ms.Tensor(data(2, 3, 5, 5)))
    assert_equal(of_input, x.grad)
    for own, parameter in zip(of_weights, module.parameters(), strict=True):
        assert_equal(own, parameter.grad)
    assert_equal(net.norm.running_mean, module.norm.running_mean)
    net.set_train(False)
    assert_equal(net(ms.Tensor(data(2, 3, 5, 5))), module.eval()(on_device(data(2, 3, 5, 5))))


@pytest.mark.parametrize("kind", ["cell", "layer"])
def test_batch_norm_that_averages_over_all_batches(kind: str, context_mode: str) -> None:
    """With `momentum=None` it is a number that only the run knows: one divided by the number of batches."""
    module = torch.nn.BatchNorm2d(4, momentum=None).to(torch_device())
    net = tnn.BatchNorm2d(4, momentum=None) if kind == "layer" else bridge.cell(copy.deepcopy(module))
    net.set_train()

    def loss(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return ms.ops.square(net(x)).sum()

    value_and_grad = ms.value_and_grad(loss, 0, net.trainable_params())
    for step in range(3):
        x = on_device(data(3, 4, 5, 5, seed=step), requires_grad=True)
        expected = torch.autograd.grad(module(x).square().sum(), [x, *module.parameters()])
        _, (of_input, of_weights) = value_and_grad(ms.Tensor(data(3, 4, 5, 5, seed=step)))
        for own, gradient in zip([of_input, *of_weights], expected, strict=True):
            assert_equal(own, gradient)
        buffers = [parameter for parameter in net.get_parameters() if not parameter.requires_grad]
        for own, buffer in zip(buffers, module.buffers(), strict=True):
            assert_equal(own, buffer)
    net.set_train(False)
    assert_equal(net(ms.Tensor(data(2, 4, 5, 5))), module.eval()(on_device(data(2, 4, 5, 5))))


def test_state_dict_there_and_back(tmp_path: Any) -> None:
    module, net = TorchBlock(), Block()
    torch.save(module.state_dict(), tmp_path / "saved.pt")
    state = torch.load(tmp_path / "saved.pt")
    del state["mixed.1.weight"]
    with pytest.raises(RuntimeError, match=r'loading state_dict for Block:\s+Missing key.*"mixed.1.weight"'):
        tnn.load_state_dict(net, state)
    assert tnn.load_state_dict(net, state, strict=False).missing_keys == ["mixed.1.weight"]
    tnn.load_state_dict(net, module.state_dict())
    assert list(tnn.state_dict(net)) == list(module.state_dict())
    module.load_state_dict(tnn.state_dict(net))
    assert_equal(net.mixed[1].weight, module.mixed[1].weight)
    net.mixed[1].weight.set_data(ms.Tensor(data(5, 36)))
    assert np.array_equal(tnn.state_dict(net)["mixed.1.weight"].cpu().numpy(), data(5, 36))


def test_what_is_inside_a_layer() -> None:
    layer = tnn.TransformerEncoder(tnn.TransformerEncoderLayer(8, 2, 16), 2)
    inner = layer.layers[1].linear1
    assert isinstance(inner, tnn.Linear) and inner.in_features == 8
    assert inner.weight is layer._params["layers.1.linear1.weight"]
    assert len(layer.layers) == 2 and [type(one).__name__ for one in layer.layers] == ["TransformerEncoderLayer"] * 2
    assert tnn.Linear(3, 4, bias=False).bias is None
    with pytest.raises(AttributeError):
        _ = layer.no_such_name


@pytest.mark.parametrize("make", [list, np.array], ids=["lists", "tensors"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_lengths_of_the_ctc_loss_are_data_in_a_graph(make: Callable[[Any], Any], reduction: str) -> None:
    scores, targets = data(12, 3, 5), np.random.default_rng(0).integers(1, 5, (3, 4))
    lengths = make([12, 10, 9]), make([4, 2, 3])
    layer = tnn.CTCLoss(reduction=reduction)

    def loss(scores, *given):
        return layer(T.log_softmax(scores, -1), *given)

    x = on_device(scores, requires_grad=True)
    own, theirs = (
        [to(each) if isinstance(each, np.ndarray) else each for each in (targets, *lengths)]
        for to in (ms.Tensor, on_device)
    )
    expected = layer.module(torch.log_softmax(x, -1), *theirs)
    expected.sum().backward()
    assert_equal(ms.jit(loss)(ms.Tensor(scores), *own), expected)
    assert_equal(ms.jit(ms.grad(loss))(ms.Tensor(scores), *own), x.grad)


def test_what_is_inside_is_found_as_in_pytorch() -> None:
    def networks(lib: Any) -> Any:
        return lib.Sequential(lib.TransformerEncoderLayer(8, 2, 16), lib.BatchNorm1d(8))

    net, module = networks(tnn), networks(torch.nn)
    assert [name for name, _ in net.named_modules()] == [name for name, _ in module.named_modules()]
    assert [name for name, _ in net.named_children()] == ["0", "1"]
    assert [name for name, _ in net.named_parameters()] == [name for name, _ in module.named_parameters()]
    assert net.get_submodule("0.linear1").in_features == 8
    assert {p.name for p in net.parameters()} == {p.name for p in net.trainable_params()}
    net.requires_grad_(False)
    assert not net.trainable_params()


def test_tied_parameters_are_found_once() -> None:
    net = Lists()
    net.add_module("again", net.layers[0])
    net.register_parameter("also", net.own)
    assert [name for name, _ in net.named_parameters()].count("own") == 1
    assert len([*net.modules()]) == len({id(cell) for cell in net.modules()})


def test_lists_in_lists_have_names_of_their_own() -> None:
    class Nested(tnn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = tnn.ModuleList([]), tnn.ModuleList([])
            for layers in (self.down, self.up):
                layers.append(tnn.ModuleList([tnn.Linear(2, 2)]))

    names = [parameter.name for parameter in Nested().trainable_params()]
    assert names == ["down.0.0.weight", "down.0.0.bias", "up.0.0.weight", "up.0.0.bias"]


class SometimesNormalized(tnn.Module):
    """x-transformers has None in its lists for the layers that an option leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = tnn.ModuleList([None, tnn.Linear(3, 3), None])
        self.parts.extend([None, tnn.LayerNorm(3)])
        self.parts.insert(1, None)
        self.parts[0] = tnn.Tanh()
        del self.parts[3]

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        for part in self.parts:
            x = x + 1.0 if part is None else part(x)
        return x


def test_a_list_may_have_none_in_it(context_mode: str) -> None:
    net = seeded(SometimesNormalized)
    assert [part is None for part in net.parts] == [False, True, False, True, False]
    assert list(net.state_dict()) == ["parts.2.weight", "parts.2.bias", "parts.4.weight", "parts.4.bias"]
    assert [parameter.name for parameter in net.trainable_params()] == list(net.state_dict())
    linear, norm = seeded(lambda: torch.nn.Linear(3, 3)).to(torch_device()), torch.nn.LayerNorm(3).to(torch_device())
    net.set_grad()
    assert_equal(net(ms.Tensor(data(2, 3))), norm(linear(torch.tanh(on_device(data(2, 3))) + 1.0) + 1.0))
    with pytest.raises(TypeError, match="not PyTorch's module ReLU"):
        net.parts.append(torch.nn.ReLU())


def test_apply_goes_from_the_inside_out() -> None:
    def walked(lib: Any) -> list[str]:
        net = lib.Sequential(lib.Sequential(lib.Linear(2, 2), lib.ReLU()), lib.TransformerEncoderLayer(4, 2, 4))
        seen: list[str] = []
        net.apply(lambda module: seen.append(type(module).__name__))
        return seen

    assert walked(tnn) == walked(torch.nn)


class Buffers(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", ms.Tensor(data(3)))
        self.register_buffer("table", ms.Tensor(data(3)), persistent=False)

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return x * self.mask + self.table


def test_buffers_are_in_the_state() -> None:
    net = Buffers()
    assert list(net.state_dict()) == ["mask"] and not net.trainable_params()
    net.load_state_dict({"mask": torch.zeros(3)})
    for found in in_modes(net, data(3)):
        assert np.array_equal(found.asnumpy(), data(3))


def test_inplace_layers_change_no_argument() -> None:
    with pytest.warns(UserWarning, match=r"ReLU\(inplace=True\) returns a new tensor here"):
        layer = tnn.ReLU(inplace=True)
    x = ms.Tensor(data(3, 4))
    assert_equal(ms.grad(lambda x: layer(x).sum())(x), (torch.tensor(data(3, 4)) > 0).float())
    assert np.array_equal(x.asnumpy(), data(3, 4))
    for found in in_modes(layer, data(3, 4)):
        assert_equal(found, torch.tensor(data(3, 4)).relu())


def test_settings_and_methods_are_the_modules() -> None:
    dropout = tnn.Dropout(0.5)
    dropout.p = 0.0
    assert_equal(dropout(ms.Tensor(data(4))), on_device(data(4)))
    layer = tnn.Linear(3, 4)
    torch.manual_seed(2)
    layer.reset_parameters()
    module = torch.nn.Linear(3, 4, device=torch_device())
    torch.manual_seed(2)
    module.reset_parameters()  # which draws where the weights are
    assert_equal(layer.weight, module.weight)
    table = tnn.Embedding.from_pretrained(ms.Tensor(data(5, 2)))
    assert_equal(table(ms.Tensor([4])), on_device(data(5, 2)[4:]))


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_tied_weights(mode: int) -> None:
    def tied(lib: Any) -> Any:
        table, head = lib.Embedding(6, 3), lib.Linear(3, 6, bias=False)
        head.weight = table.weight
        return table, head

    (table, head), (own_table, own_head) = seeded(lambda: tied(torch.nn)), seeded(lambda: tied(tnn))
    table.to(torch_device()), head.to(torch_device())
    assert own_head.weight is own_table.weight
    ms.set_context(mode=mode)

    def loss(words: ms.Tensor) -> ms.Tensor:
        return own_head(own_table(words)).sum()

    gradient = ms.value_and_grad(loss, None, [own_table.weight])
    head(table(torch.tensor([1, 4], device=torch_device()))).sum().backward()
    assert_equal(gradient(ms.Tensor([1, 4]))[1][0], table.weight.grad)


def test_an_attribute_that_becomes_parameters_is_checked_as_mindspore_checks_it() -> None:
    for cell in (nn.Cell(), tnn.Module(), tnn.ReLU()):
        cell.own = []
        first, second = (ms.Parameter(ms.Tensor([0.0]), name="same") for _ in range(2))
        with pytest.raises(ValueError, match="already exists"):
            cell.own = [first, second]


class Varied(torch.nn.Module):
    """Returns itself a parameter, a part of its input, and what it was given, by position and by name."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, kind: str, x: torch.Tensor, *, y: torch.Tensor | None = None) -> Any:
        found = {"parameter": self.weight, "view": x[:1], "conjugate": torch.complex(x, x).conj(), "transposed": x.T}
        return {"one": found[kind], "more": (found[kind], y, kind)}


@pytest.mark.parametrize("kind", ["parameter", "view", "conjugate", "transposed"])
def test_results_of_every_kind_have_memory_of_their_own(kind: str) -> None:
    module, x = Varied(), np.array([[3.0, 4.0], [5.0, 6.0]], np.float32)
    expected = module(kind, torch.from_numpy(x), y=torch.from_numpy(x))
    found: list[Any] = []

    def run(x: ms.Tensor) -> ms.Tensor:
        found.append(bridge.cell(module)(kind, x, y=x))
        return x

    run(ms.Tensor(x))
    ms.grad(run)(ms.Tensor(x))
    for results in found:
        assert_equal(results["one"], expected["one"].resolve_conj())
        assert_equal(results["more"][0], expected["more"][0].resolve_conj())
        assert_equal(results["more"][1], expected["more"][1])
        assert results["more"][2] == kind


def test_modes_of_layers() -> None:
    layer, net = tnn.TransformerEncoderLayer(8, 2, 16), Block()
    assert layer.training and layer.module.training and net.norm.training
    assert not layer.eval().module.dropout.training and layer.train().module.dropout.training
    net.set_train(False)
    assert not net.mixed[2].module.training


def test_hooks_of_mindspores_run_also_in_a_sequence() -> None:
    seen = []
    net = tnn.Sequential(tnn.Linear(3, 4), tnn.ReLU())
    net[0].register_forward_hook(lambda cell, inputs, output: seen.append(output.shape))
    net(ms.Tensor(data(2, 3)))
    assert seen == [(2, 4)]


def test_a_sequence_follows_its_changes() -> None:
    net = tnn.Sequential(tnn.Linear(3, 4), tnn.ReLU())
    x = ms.Tensor(data(2, 3))
    assert net(x).shape == (2, 4)
    net.append(tnn.Linear(4, 5))
    net[0] = tnn.Linear(3, 4, bias=False)
    assert net(x).shape == (2, 5)
    assert [p.name for p in net.get_parameters()] == ["0.weight", "2.weight", "2.bias"]
    expected = torch.nn.Sequential(*(copy.deepcopy(layer.module) for layer in net)).to(torch_device())
    assert_equal(net(x), expected(on_device(data(2, 3))))


class Lists(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = tnn.ModuleList(tnn.Linear(3, 3) for _ in range(2))
        self.named = tnn.ModuleDict({"a": tnn.Tanh(), "b": nn.ReLU(), "c": tnn.ModuleList([tnn.Tanh()])})
        self.scales = tnn.ParameterList([ms.Tensor(data(3))])
        self.shifts = tnn.ParameterDict({"x": ms.Tensor(data(3))})
        self.own = tnn.Parameter(ms.Tensor(data(3)))

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        for layer in self.layers:
            x = layer(x)
        return self.named["a"](x) * self.scales[0] + self.shifts["x"] + self.own


def test_containers() -> None:
    net = Lists()
    names = [*(f"layers.{i}.{kind}" for i in range(2) for kind in ("weight", "bias")), "scales.0", "shifts.x"]
    assert list(net.state_dict()) == ["own", *names]
    assert sorted(p.name for p in net.trainable_params()) == sorted(["own", *names])
    x = on_device(data(2, 3))
    for layer in net.layers:
        x = copy.deepcopy(layer.module).to(torch_device())(x)
    expected = x.tanh() * on_device(data(3)) + on_device(data(3)) + on_device(data(3))
    assert np.allclose(net(ms.Tensor(data(2, 3))).asnumpy(), expected.detach().cpu().numpy())  # MindSpore's own kernels


class Scales(tnn.Module):
    def __init__(self, construct: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.all = tnn.ParameterList([ms.Tensor(data(3)), ms.Tensor(data(3, seed=1))])
        self.by_name = tnn.ParameterDict({"x": ms.Tensor(data(3))})
        self.how = construct

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.how(self, x)


def by_index(m, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return aten.sum(aten.mul(aten.mul(x, m.all[0]), m.all[-1]))


def by_loop(m, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    for scale in m.all:
        x = aten.mul(x, scale)
    for i in range(len(m.all)):
        x = aten.mul(x, m.all[i])
    return aten.sum(x)


def by_values(m, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    for scale in m.by_name.values():
        x = aten.mul(x, scale)
    return aten.sum(x)


@pytest.mark.parametrize("construct", [by_index, by_loop, by_values])
def test_listed_parameters_have_gradients_in_a_graph(construct: Callable[[Any, Any], Any]) -> None:
    net = Scales(construct)
    differentiate = ms.value_and_grad(net, None, net.trainable_params())

    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    x = ms.Tensor(data(2, 3))
    expected, found = step(x), ms.jit(step)(x)
    assert any(gradient.asnumpy().any() for gradient in found[1])
    for own, other in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        np.testing.assert_array_equal(own.asnumpy(), other.asnumpy())


def test_a_parameter_by_name_is_refused_in_a_graph() -> None:
    net = Scales(lambda m, x: x)
    net.how = lambda m, x: aten.mul(x, m.by_name["x"])

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.mul(x, net.by_name["x"])

    with pytest.raises(Exception, match=r"ParameterDict\['x'\] is a constant .* values\(\) or items\(\)"):
        ms.jit(call)(ms.Tensor(data(2, 3)))


@pytest.mark.parametrize("use", ["optimizer", "graph", "init", "copy"])
def test_a_cast_layer_is_used_at_once(use: str) -> None:
    net = tnn.Linear(3, 2).double()
    x = ms.Tensor(data(4, 3).astype(np.float64))
    if use == "optimizer":
        optim.SGD(net.trainable_params(), lr=0.1)
    elif use == "init":
        tnn.init.zeros_(net.weight)
        assert not net.weight.asnumpy().any()
    else:
        made = copy.deepcopy(net) if use == "copy" else net

        def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return made(x)

        result = (ms.jit(call) if use == "graph" else call)(x)
        assert_equal(result, copy.deepcopy(net.module).to(torch_device())(on_device(data(4, 3).astype(np.float64))))


@pytest.mark.parametrize("dtype", [ms.bfloat16, ms.float16, ms.float64, ms.complex64])
def test_a_dtype_is_either_frameworks(dtype: Any) -> None:
    assert tnn.Linear(3, 2, dtype=dtype).weight.dtype == dtype


@pytest.mark.parametrize("make", [lambda lib: lib.LazyLinear(5), lambda lib: lib.LazyConv1d(5, 2)])
def test_lazy_layers(make: Callable[[Any], Any]) -> None:
    net = nn.SequentialCell(tnn.Identity(), make(tnn))
    module = make(torch.nn)
    assert list(net[1].state_dict()) == list(module.state_dict()) and not net.trainable_params()
    x = data(2, 3, 4)
    seeded(lambda: module(torch.tensor(x)))  # which draws its values on the CPU, as the layer does
    expected = module.to(torch_device())(on_device(x))
    assert_equal(seeded(lambda: net(ms.Tensor(x))), expected)
    assert [p.name for p in net.trainable_params()] == ["1.weight", "1.bias"]
    assert type(net[1]) is getattr(tnn, type(module).__name__)
    for found in in_modes(net, x):
        assert_equal(found, expected)


def test_a_lazy_layer_is_not_trained_before_its_first_call() -> None:
    net = tnn.Sequential(tnn.Linear(3, 4), tnn.LazyLinear(5))
    with pytest.warns(UserWarning, match="Sequential: 1 has no Parameters before the first call, and an optimizer"):
        assert len(net.trainable_params()) == 2
    net(ms.Tensor(data(2, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(net.trainable_params()) == 4


def test_a_lazy_layer_in_a_graph_says_what_to_do() -> None:
    layer = tnn.LazyLinear(5)
    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(RuntimeError, match="LazyLinear has no shapes yet: call it once in PyNative mode"):
        layer(ms.Tensor(data(2, 3)))


def test_copies() -> None:
    net = tnn.Sequential(tnn.Linear(3, 4), tnn.ReLU(), tnn.Sequential(tnn.Linear(4, 4), tnn.Tanh()))
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert [p.name for p in copied.get_parameters()] == [p.name for p in net.get_parameters()]
        x = ms.Tensor(data(2, 3))
        assert np.array_equal(copied(x).asnumpy(), net(x).asnumpy())
        copied[0].weight.set_data(ms.Tensor(data(4, 3)))
        copied(x)
        assert not np.array_equal(copied[0].weight.asnumpy(), net[0].weight.asnumpy())


def test_a_layers_parameter_is_taken_out_by_none() -> None:
    layer, x = tnn.Linear(3, 4), ms.Tensor(data(2, 3))
    expected = layer(x).asnumpy()
    for change in (
        lambda: delattr(layer, "bias"),
        lambda: layer.insert_param_to_cell("bias", ms.Parameter(ms.ops.ones(4), name="bias")),
    ):
        with pytest.raises(AttributeError, match=r"Linear\.bias stays the Parameter.*assign to it, `layer\.bias = "):
            change()
    assert np.array_equal(layer(x).asnumpy(), expected)
    layer.bias = None
    assert [parameter.name for parameter in layer.get_parameters()] == ["weight"]
    assert np.array_equal(layer(x).asnumpy(), aten.linear(x, layer.weight).asnumpy())
    norm = tnn.BatchNorm1d(3)
    with pytest.raises(AttributeError, match=r"BatchNorm1d\.running_mean stays the Parameter"):
        norm.running_mean = None
    norm.running_mean = ms.ops.ones(3)
    assert norm.module.running_mean.sum() == 3  # type: ignore[union-attr,operator]


def test_a_copy_keeps_what_layers_inside_others_have() -> None:
    class Net(tnn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = tnn.Embedding(5, 3)
            self.body = tnn.Sequential(tnn.Linear(3, 3), tnn.ReLU())
            self.head = tnn.Linear(3, 5, bias=False)
            self.head.weight = self.table.weight

        def construct(self, words: Any) -> Any:
            return self.head(self.body(self.table(words)))

    net, words = Net(), ms.Tensor([1, 4])
    net.body.requires_grad_(False)
    net.to_float(ms.float16)
    found = copy.deepcopy(net)
    assert [parameter.name for parameter in found.trainable_params()] == ["table.weight"]
    assert found.head.weight is found.table.weight is not net.table.weight
    assert found(words).dtype == net(words).dtype == ms.float16
    assert np.array_equal(found(words).asnumpy(), net(words).asnumpy())


class Own(tnn.Linear):
    pass


class WithoutSuper(tnn.Module):
    def __init__(self) -> None:
        self.inner = tnn.Linear(2, 2)


def other_device() -> str:
    return "cpu" if torch_device() != "cpu" else "cuda"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: tnn.Linear(3, 4, device=other_device()), TypeError, "leave device out and call mindspore.set_device"),
        (lambda: tnn.Linear(3), TypeError, "out_features"),  # type: ignore[call-arg]
        (lambda: tnn.Conv2d(3, 4, 3, groups=2), ValueError, "in_channels must be divisible by groups"),
        (lambda: tnn.TransformerEncoder(nn.ReLU(), 2), TypeError, "ReLU is no layer of bridge.nn"),
        (lambda: tnn.DataParallel, AttributeError, "msrun"),
        (lambda: tnn.Linear(3, 4).nothing(), AttributeError, "nothing"),
        (lambda: copy.deepcopy(Own(3, 4)), TypeError, "Own derives from a layer"),
        (lambda: type("Net", (tnn.Module,), {"forward": None}), TypeError, "name its `forward` so"),
        (
            lambda: setattr(tnn.Linear(3, 4), "weight", 3),
            TypeError,
            "takes one of MindSpore's Parameters or None, not int",
        ),
        (
            lambda: setattr(tnn.Linear(3, 4), "weight", torch.nn.Parameter(torch.ones(4, 3))),
            TypeError,
            "takes one of MindSpore's Parameters or None, not PyTorch's",
        ),
        (lambda: tnn.state_dict(torch.nn.ReLU()), TypeError, "a Cell is needed, not ReLU"),  # type: ignore[arg-type]
        (lambda: tnn.load_state_dict(tnn.ReLU(), "x.pt"), TypeError, "as torch.load gives it, not str"),  # type: ignore[arg-type]
        (lambda: setattr(tnn.Module(), "inner", torch.nn.ReLU()), TypeError, "bridge.cell makes a Cell"),
        (
            lambda: setattr(tnn.Module(), "own", torch.nn.Parameter(torch.ones(2))),
            TypeError,
            "no optimizer would train",
        ),
        (lambda: tnn.Parameter(torch.ones(2)), TypeError, "was given PyTorch's"),
        (lambda: WithoutSuper(), AttributeError, r"before super\(\).__init__\(\) is called"),
        (lambda: tnn.Sequential(tnn.ReLU(), torch.nn.ReLU()), TypeError, "not PyTorch's module ReLU"),
        (lambda: tnn.ModuleList([torch.nn.ReLU()]), TypeError, "not PyTorch's module ReLU"),
        (lambda: tnn.ModuleDict({"a": torch.nn.ReLU()}), TypeError, "not PyTorch's module ReLU"),
        (lambda: tnn.Linear(3, 4).to(other_device()), ValueError, "is not MindSpore's device"),
        (lambda: tnn.Linear(3, 4).to(torch.int32), TypeError, "takes a floating-point or complex dtype"),
        (lambda: tnn.Linear(3, 4).zero_grad(), AttributeError, "leave zero_grad out"),
        (lambda: tnn.init.zeros_(tnn.Linear(3, 4).weight.data), TypeError, "without `.data`"),
        (lambda: tnn.Linear(3, 4).forward, AttributeError, "call it"),
        (lambda: tnn.Lineer, AttributeError, "did you mean Linear"),
        (lambda: tnn.modules, AttributeError, "bridge.nn has the layers"),
        (lambda: tnn.parallel, AttributeError, "by msrun"),
        (lambda: type("Own", (tnn.Parameter,), {}), TypeError, "Own cannot derive from Parameter"),
        (lambda: tnn.Sequential(tnn.ReLU()).insert(2, tnn.ReLU()), IndexError, "Index out of range: 2"),
    ],
)
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "inserted": lambda lib, net: net.insert(1, lib.BatchNorm1d(4)),
    "inserted at the end": lambda lib, net: net.insert(3, lib.Linear(4, 4)),
    "taken out": lambda lib, net: net.pop(0) and net,
    "added": lambda lib, net: net + lib.Sequential(lib.Linear(4, 2)),
    "added in place": lambda lib, net: operator.iadd(net, lib.Sequential(lib.Linear(4, 2))),
    "a slice": lambda lib, net: net[1:],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["Sequential", "ModuleList"])
def test_lists_change_as_pytorchs(kind: str, change: str) -> None:
    def made(lib: Any) -> Any:
        parts = lib.Linear(4, 4), lib.Tanh(), lib.Linear(4, 4)
        net = lib.Sequential(*parts) if kind == "Sequential" else lib.ModuleList(parts)
        return CHANGES[change](lib, net) or net

    own, reference = seeded(lambda: made(tnn)), seeded(lambda: made(torch.nn))
    assert [type(layer).__name__ for layer in own] == [type(module).__name__ for module in reference]
    assert list(tnn.state_dict(own)) == list(reference.state_dict())
    x = data(3, 4)
    expected = functools.reduce(lambda value, module: module(value), reference.to(torch_device()), on_device(x))
    assert_equal(functools.reduce(lambda value, layer: layer(value), own, ms.Tensor(x)), expected)


def test_a_slice_leaves_the_names() -> None:
    class Net(tnn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = tnn.ModuleList([tnn.Linear(4, 4), None, tnn.Linear(4, 4)])
            self.body = tnn.Sequential(tnn.Linear(4, 4), tnn.Linear(4, 4))

        def construct(self, x: Any) -> Any:
            return self.body[1:](self.rows[-1:][0](x))

    net = Net()
    names = [parameter.name for parameter in net.get_parameters()]
    net(ms.Tensor(data(2, 4)))
    assert [parameter.name for parameter in net.get_parameters()] == names == list(net.state_dict())


def test_parameters_are_instances() -> None:
    parameter, buffer = tnn.Parameter(ms.Tensor(data(2))), tnn.Buffer(ms.Tensor(data(2)))
    assert isinstance(parameter, tnn.Parameter) and not isinstance(parameter, tnn.Buffer)
    assert isinstance(buffer, tnn.Buffer) and not isinstance(ms.Tensor(data(2)), tnn.Parameter)
    assert isinstance(tnn.Linear(2, 2).weight, tnn.Parameter | None)
    assert "(1): (3,) Float32" in repr(tnn.ParameterList([parameter, ms.Tensor(data(3))]))


def test_a_state_dict_has_a_prefix() -> None:
    net, reference = tnn.Sequential(tnn.BatchNorm1d(3)), torch.nn.Sequential(torch.nn.BatchNorm1d(3))
    assert list(net.state_dict(prefix="net.")) == list(reference.state_dict(prefix="net."))


@pytest.mark.parametrize(
    "cast",
    [lambda net: net.double(), lambda net: net.to(torch_device(), torch.float64), lambda net: net.to(ms.float64)],
    ids=["double", "to", "to MindSpore's"],
)
def test_a_cast_is_pytorchs(cast: Callable[[Any], Any]) -> None:
    def made(lib: Any) -> Any:
        return lib.Sequential(lib.Linear(3, 4), lib.BatchNorm1d(4))

    x = data(5, 3).astype(np.float64)
    own, reference = cast(seeded(lambda: made(tnn))), seeded(lambda: made(torch.nn)).to(torch_device()).double()
    for result in in_modes(own, x):
        assert_equal(result, reference(on_device(x)))
    assert all(own.state_dict()[name].cpu().equal(value.cpu()) for name, value in reference.state_dict().items())


def test_what_has_been_called_is_copied() -> None:
    net, x = tnn.Sequential(tnn.Linear(3, 4), tnn.Tanh()), ms.Tensor(data(2, 3))
    expected = net(x).asnumpy()
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert np.array_equal(copied(x).asnumpy(), expected)
        copied[0].weight.set_data(copied[0].weight * 2)
    assert np.array_equal(net(x).asnumpy(), expected)


def test_mindspores_state_dict() -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.layer = tnn.Linear(3, 4)
            self.body = bridge.cell(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
            self.list = tnn.ModuleList([tnn.Linear(4, 2)])

        def construct(self, x: Any) -> Any:
            return self.list[0](self.body(self.layer(x)))

    net, x = Net().set_train(False), ms.Tensor(data(2, 3))
    names = list(net.state_dict())
    assert names == list(tnn.state_dict(net))

    @ms.jit
    def run(x: Any) -> Any:
        return net(x)

    before = run(x).asnumpy()
    theirs = {name: value * 0 + 2 for name, value in tnn.state_dict(net).items()}
    for state in (theirs, {name: ms.Tensor(value.cpu().numpy()) for name, value in theirs.items()}):
        assert not any(net.load_state_dict(state))
        assert all((value.asnumpy() == 2).all() for value in net.state_dict().values())
        assert net.body.module[0].weight.eq(2).all()
        assert np.array_equal(run(x).asnumpy(), net(x).asnumpy()) and not np.array_equal(run(x).asnumpy(), before)
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "body.2.weight"'):
        net.load_state_dict({**theirs, "body.2.weight": ms.Tensor(1.0)})


def test_dtypes_and_devices_are_mindspores() -> None:
    layer = tnn.Linear(3, 4, dtype=ms.float64, device=torch_device())
    assert layer.weight.dtype == ms.float64 and torch_view(layer.weight).dtype == torch.float64


@pytest.mark.parametrize("make", [lambda: tnn.Linear(4, 5).weight, lambda: nn.Dense(4, 5).weight])
@pytest.mark.parametrize(
    ("name", "args"),
    [("kaiming_normal_", ()), ("xavier_uniform_", (2.0,)), ("trunc_normal_", (0.0, 0.1)), ("zeros_", ()),
     ("orthogonal_", ())],
)  # fmt: skip
def test_init_draws_what_pytorch_draws(make: Callable[[], Any], name: str, args: Any) -> None:
    weight, expected = make(), torch.empty(5, 4, device=torch_device())
    torch.manual_seed(4)
    getattr(torch.nn.init, name)(expected, *args)
    ms.set_seed(4)
    assert getattr(tnn.init, name)(weight, *args) is weight
    assert_equal(weight, expected)


@pytest.mark.parametrize("jit", [False, True])
def test_clipped_gradients(jit: bool) -> None:
    def clip(*gradients: ms.Tensor) -> Any:
        return tnn.utils.clip_grad_norm_(gradients, 0.5)

    tensors = [torch.zeros(shape, device=torch_device()) for shape in ((3, 4), (5,))]
    for tensor in tensors:
        tensor.grad = on_device(data(*tensor.shape))
    norm = torch.nn.utils.clip_grad_norm_(tensors, 0.5)
    found, own_norm = (ms.jit(clip) if jit else clip)(ms.Tensor(data(3, 4)), ms.Tensor(data(5)))
    assert_equal(own_norm, norm)
    for own, tensor in zip(found, tensors, strict=True):
        assert_equal(own, tensor.grad)


@pytest.mark.parametrize("clip", [tnn.utils.clip_grad_norm_, tnn.utils.clip_grad_value_])
def test_parameters_are_no_gradients(clip: Callable[..., Any]) -> None:
    layer = tnn.Linear(3, 4)
    for parameters in (layer.parameters(), layer.trainable_params()):
        with pytest.raises(TypeError, match="takes gradients, which are values here"):
            clip(parameters, 1.0)
    found = clip((parameter * 2 for parameter in layer.trainable_params()), 1.0)
    assert len(found) == 2


def test_packed_sequences() -> None:
    def run(lib: Any, layer: Any, x: Any) -> Any:
        packed = lib.pack_padded_sequence(x, [5, 3, 2], batch_first=True)
        result, _ = layer(packed)
        return lib.pad_packed_sequence(result, batch_first=True)[0]

    module, layer = seeded(lambda: torch.nn.LSTM(4, 6)).to(torch_device()), seeded(lambda: tnn.LSTM(4, 6))
    x = on_device(data(3, 5, 4), requires_grad=True)
    expected = run(torch.nn.utils.rnn, module, x)
    expected.sum().backward()

    def loss(tensor: ms.Tensor) -> Any:
        result = run(tnn.utils.rnn, layer, tensor)
        return result.sum(), result

    (_, found), (of_input, of_weights) = ms.value_and_grad(loss, 0, layer.trainable_params(), has_aux=True)(
        ms.Tensor(data(3, 5, 4))
    )
    assert_equal(found, expected)
    assert_equal(of_input, x.grad)
    for own, parameter in zip(of_weights, module.parameters(), strict=True):
        assert_equal(own, parameter.grad)
