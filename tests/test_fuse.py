"""bridge.fuse: own code that calls the bridge has the same bits as one operator, in both modes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn, ops

import bridge
from bridge import aten
from bridge import nn as tnn
from bridge.op import devices
from bridge.primitive.tensors import from_torch, torch_view
from shared import data, on_device, torch_device


def numbers(*shape: int) -> ms.Tensor:
    return ms.Tensor(data(*shape))


def equal(a: ms.Tensor, b: ms.Tensor) -> bool:
    return a.asnumpy().tobytes() == b.asnumpy().tobytes()


class Line(nn.Cell):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = ms.Parameter(numbers(size, size), name="weight")
        self.bias = ms.Parameter(numbers(size), name="bias")

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.linear(x, self.weight, self.bias)


class Block(nn.Cell):
    """Cells in Cells, a list of them, a constant tensor, a helper method, and a PyTorch module."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Line(4)
        self.more = nn.CellList([Line(4), Line(4)])
        self.scale = ms.Tensor([1.0, 2.0, 3.0, 4.0], ms.float32)
        self.power = 2

    def activated(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.gelu(x)

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        x = self.activated(self.first(x))
        for line in self.more:
            x = aten.add(line(x), x, alpha=2)
        x = aten.mul(aten.softmax(x, -1, dtype=ms.float64), self.scale)
        return aten.pow(x, self.power), aten.topk(x, 2)[1]


class Network(nn.Cell):
    def __init__(self, block: nn.Cell) -> None:
        super().__init__()
        self.block = block

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        values, _ = self.block(x)
        return values.sum()


def test_a_cell_has_the_same_bits(context_mode: str) -> None:
    block = Block()
    twin = copy.deepcopy(block)
    fused = bridge.fuse(block)
    x = numbers(3, 4)
    for own, expected in zip(fused(x), twin(x), strict=True):
        assert equal(own, expected)
    assert [p.shape for p in fused.trainable_params()] == [p.shape for p in twin.trainable_params()]

    def gradients(cell: nn.Cell) -> Any:
        return ms.grad(Network(cell), 0, cell.trainable_params())(x)

    (of_x, of_weights), (expected_x, expected_weights) = gradients(fused), gradients(twin)
    assert equal(of_x, expected_x)
    assert all(map(equal, of_weights, expected_weights))


def test_a_parameter_that_changes_is_seen(context_mode: str) -> None:
    line = Line(2)
    fused = bridge.fuse(line)
    fused(numbers(1, 2))
    line.weight.set_data(ms.Tensor(np.zeros((2, 2), np.float32)))
    line.bias.set_data(ms.Tensor(np.array([5, 6], np.float32)))
    assert fused(numbers(1, 2)).asnumpy().tolist() == [[5, 6]]


SHIFT = ms.Parameter(np.array([1.0, 2.0], np.float32), name="shift")


def helper(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return aten.add(x, SHIFT)


def test_a_function_may_see_parameters_and_call_others(context_mode: str) -> None:
    factor = ms.Tensor([3.0, 4.0], ms.float32)

    def scaled(x, times=1.0):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.mul(helper(x), factor) * times + aten.ones([2])

    fused: Any = bridge.fuse(scaled)
    x = numbers(3, 2)
    assert equal(fused(x, times=2.0), scaled(x, 2.0))
    assert [p.name for p in fused.weights] == ["shift"]

    def total(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return fused(x).sum()

    gradient = ms.grad(total, None, fused.weights)(x)
    assert gradient[0].asnumpy().tolist() == [9, 12]


def test_a_function_may_see_itself_and_have_tensors_for_defaults(context_mode: str) -> None:
    factor, term = numbers(2), numbers(2) + 1

    def power(x, times, by=factor, *, plus=term):  # type: ignore[no-untyped-def]
        return x if times == 0 else power(aten.mul(x, by) + plus, times - 1)

    x = numbers(3, 2)
    assert equal(bridge.fuse(lambda x: power(x, 2))(x), power(power(x, 1), 1))


class WithModule(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = bridge.cell(torch.nn.BatchNorm1d(4))

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.relu(self.norm(aten.mul(x, 2)))


def test_a_module_inside_is_part_of_it_and_its_buffers_change(context_mode: str) -> None:
    own, reference = WithModule(), WithModule()
    fused = bridge.fuse(own)
    for cell in (fused, reference):
        cell.set_train()
    x = numbers(3, 4)
    for _ in range(2):
        assert equal(fused(x), reference(x))
    fused.set_train(False)
    reference.set_train(False)
    assert equal(fused(x), reference(x))
    names = {p.name: p for p in reference.get_parameters()}
    buffers = [p for p in own.get_parameters() if "running" in p.name]
    assert len(buffers) == 2 and all(equal(p, names[p.name]) for p in buffers)


class Normalized(nn.Cell):
    """Running statistics in Parameters that were not frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = ms.Parameter(np.zeros(4, np.float32), name="mean")
        self.variance = ms.Parameter(np.ones(4, np.float32), name="variance")

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.batch_norm(x, None, None, self.mean, self.variance, True, 0.1, 1e-5, False)


def test_running_statistics_change(context_mode: str) -> None:
    block = Normalized()
    fused, x = bridge.fuse(block), numbers(3, 4)
    theirs = torch.from_numpy(x.asnumpy()).to(devices.torch_name(devices.target()))
    mean, variance = torch.zeros(4, device=theirs.device), torch.ones(4, device=theirs.device)
    ms.grad(fused)(x)
    torch.batch_norm(theirs, None, None, mean, variance, True, 0.1, 1e-5, False)
    expected = torch.batch_norm(theirs, None, None, mean, variance, True, 0.1, 1e-5, False)
    found = (fused(x), block.mean, block.variance)
    for own, tensor in zip(found, (expected, mean, variance), strict=True):
        assert own.asnumpy().tobytes() == tensor.cpu().numpy().tobytes()


class InSequence(tnn.Module):
    """Layers and own Cells in containers, and methods and operators of tensors, which are PyTorch's when fused."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = tnn.Sequential(tnn.Linear(4, 4), tnn.Sequential(tnn.ReLU(), Line(4)), tnn.Tanh())
        self.named = tnn.ModuleDict({"list": tnn.ModuleList([tnn.Linear(4, 4)])})

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        x = self.named["list"][0](self.layers(x))
        return (x @ x.transpose(0, 1)).std()


def test_containers_are_fused(context_mode: str) -> None:
    net = InSequence()
    on_torch = net.layers[0].module, net.named["list"][0].module
    x = torch.tensor(data(3, 4)).to(devices.torch_name(devices.target()))
    weight, bias = (torch_view(one).to(x.device) for one in (net.layers[1][1].weight, net.layers[1][1].bias))
    hidden = on_torch[1](torch.nn.functional.linear(on_torch[0](x).relu(), weight, bias).tanh())
    assert equal(bridge.fuse(net)(numbers(3, 4)), from_torch((hidden @ hidden.transpose(0, 1)).std().detach()))


def test_draws_are_the_same(context_mode: str) -> None:
    def dropped(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.dropout(x, 0.5, True)

    x = numbers(4, 4)
    bridge.manual_seed(1)
    expected = dropped(x)
    bridge.manual_seed(1)
    fused: Any = bridge.fuse(dropped)
    assert equal(fused(x), expected)


class CallsMindSpore(nn.Cell):
    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        y = aten.relu(x)
        return ops.softmax(y, -1)


class MixesMindSpore(nn.Cell):
    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.add(x, ops.ones((2, 2)))


class GivesMindSpore(nn.Cell):
    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return ops.ones((2, 2))


REFUSALS = [
    (CallsMindSpore, ["bridge.fuse takes the bridge's operators only", "return ops.softmax(y, -1)", "test_fuse.py"]),
    (
        MixesMindSpore,
        [
            "inside bridge.fuse all tensors are PyTorch's",
            "(2, 2)",
            "or the program has it from where bridge.fuse does not look",
        ],
    ),
    (GivesMindSpore, ["gives a tensor that is MindSpore's"]),
]


@pytest.mark.parametrize("make, words", REFUSALS)
def test_what_is_mindspores_is_refused_with_its_line(context_mode: str, make: Any, words: list[str]) -> None:
    x = numbers(2, 2)
    with pytest.raises((RuntimeError, TypeError)) as caught:
        bridge.fuse(make())(x)
    for word in words:
        assert word in str(caught.value)
    assert equal(bridge.fuse(Line(2))(x), Line(2)(x))


def test_a_fused_cell_has_the_state_of_its_cell() -> None:
    block = tnn.Sequential(tnn.Linear(3, 4), tnn.BatchNorm1d(4))
    fused = bridge.fuse(block)
    tnn.load_state_dict(fused, {name: value + 1 for name, value in tnn.state_dict(block).items()})
    state, reference = tnn.state_dict(fused), block.state_dict()
    assert list(state) == list(reference) and all(state[name].equal(reference[name]) for name in state)
    with pytest.raises(AttributeError, match="FusedCell has no train: MindSpore's name is set_train"):
        fused.train()


def test_what_cannot_be_fused_is_refused() -> None:
    with pytest.raises(TypeError, match="not int"):
        bridge.fuse(3)
    line = Line(2)
    line.register_forward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="Line has hooks"):
        bridge.fuse(line)


class Counts(torch.nn.Module):
    """Its next call is another one."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class Hooked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = torch.nn.ReLU()
        self.part.register_forward_hook(lambda *_: None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x)


@pytest.mark.parametrize("wrap", [bridge.fuse, bridge.value_and_grad, lambda call: bridge.fuse(bridge.fuse(call))])
@pytest.mark.parametrize(
    "kind, words", [(Counts, r"Counts\.calls changes in a call"), (Hooked, r"Hooked\.part has forward hooks")]
)
@pytest.mark.usefixtures("own_programs")
def test_what_a_graph_does_not_see_of_a_module_inside_is_refused(kind: Any, words: str, wrap: Any) -> None:
    cell = bridge.cell(kind())
    fused = wrap(lambda x: cell(x))

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return fused(x)

    with pytest.raises(RuntimeError, match=words):
        call(numbers(2, 2))
    fused(numbers(2, 2))  # in PyNative mode all of it runs


def test_outside_a_tensor_of_pytorchs_is_refused_as_before() -> None:
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        aten.relu(torch.ones(2))


class Remembers(tnn.Module):
    """Buffers of both kinds, a list and a table."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tnn.Parameter(numbers(4))
        self.register_buffer("window", numbers(4))
        self.mean = tnn.Buffer(numbers(4))
        self.seen: list[int] = []
        self.table = {"n": 0}

    def construct(self, x: Any) -> Any:
        self.seen.append(1)
        self.table["n"] += 1
        self.mean = aten.mul(self.mean, 0.5)
        y = aten.mul(aten.mul(aten.mul(x, self.weight), self.window), self.mean)
        return aten.add(y, 100.0 * len(self.seen) + self.table["n"])


def test_what_a_cell_keeps_is_seen_and_written() -> None:
    torch.manual_seed(0)
    own, inner = Remembers(), Remembers()
    fused = bridge.fuse(inner)
    for _ in range(2):
        assert equal(fused(numbers(3, 4)), own(numbers(3, 4)))
        state = {name: torch.rand(4) for name in own.state_dict()}
        for cell in (own, inner):
            cell.load_state_dict(state)
    assert equal(fused(numbers(3, 4)), own(numbers(3, 4)))
    assert (inner.seen, inner.table) == (own.seen, own.table) == ([1, 1, 1], {"n": 3})
    assert equal(inner.mean, own.mean)


@pytest.mark.parametrize("wrap", [bridge.fuse, lambda function: bridge.value_and_grad(function, 0)])
def test_variables_around_a_function_are_followed(wrap: Any) -> None:
    scale, scales, calls = 2.0, [3.0], 0

    def scaled(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return aten.mul(x, scale * scales[0] * calls)

    program = wrap(scaled)
    found = [program(numbers(4))]
    scale, scales[0] = 5.0, 7.0
    found.append(program(numbers(4)))
    assert calls == 2
    for result, factor in zip(found, (6.0, 70.0), strict=True):
        value = result[0] if isinstance(result, tuple) else result
        assert equal(value, aten.mul(numbers(4), factor))


def test_what_a_program_cannot_keep_is_refused() -> None:
    seen: list[Any] = []
    last: Any = None

    @bridge.fuse
    def appends(x: Any) -> Any:
        seen.append(x)
        return x

    @bridge.fuse
    def assigns(x: Any) -> Any:
        nonlocal last
        last = x
        return aten.neg(x)

    with pytest.raises(RuntimeError, match=r"puts a tensor into a list .* give it as a result"):
        appends(numbers(4))
    with pytest.raises(RuntimeError, match=r"sets a variable around a function to a tensor"):
        assigns(numbers(4))
    assert seen == [] and last is None
    net = tnn.Sequential(tnn.Linear(4, 4))
    program = bridge.fuse(lambda x: net(x))
    program(numbers(4))
    net = tnn.Sequential(tnn.Linear(4, 4))
    with pytest.raises(RuntimeError, match=r"was not there when the program was made"):
        program(numbers(4))


def test_all_parameters_are_there_in_a_loss() -> None:
    net = tnn.Sequential(tnn.Linear(4, 4), tnn.Tanh(), tnn.Linear(4, 2))

    def loss(x: Any) -> Any:
        value = aten.sum(net(x))
        for parameter in net.parameters():
            value = aten.add(value, aten.sum(aten.mul(parameter, parameter)))
        return value

    weights = net.trainable_params()
    expected = ms.value_and_grad(loss, None, weights)(numbers(3, 4))
    found = bridge.value_and_grad(loss, None, weights)(numbers(3, 4))
    assert equal(found[0], expected[0]) and all(map(equal, found[1], expected[1]))


class Keeps:
    """An object with a Cell, whose methods write to what it has."""

    total = 0

    def __init__(self) -> None:
        self.line = Line(4)
        self.other = Line(4)
        self.lines = [self.line]
        self.table: dict[str, Any] = {"line": self.line, "n": 0}
        self.seen: list[int] = []
        self.best: Any = None
        self._factor = 1.0

    @property
    def factor(self) -> float:
        return self._factor

    @factor.setter
    def factor(self, value: float) -> None:
        self._factor = value

    def __call__(self, x: Any) -> Any:
        global calls
        calls += 1
        self.factor *= 2.0
        self.seen.append(calls)
        self.table["n"] += 1
        self.lines.append(self.other)
        self.best = self.lines[-1]
        Keeps.total += 1
        type(self).total += 1
        assert isinstance(self, Keeps) and self.best is self.other and self in {self}
        return aten.mul(self.best(self.line(x)), self.factor + len(self.lines) + self.table["n"])


calls = 0


@dataclasses.dataclass(frozen=True)
class Key:
    number: int

    def is_even(self) -> bool:
        return self.number % 2 == 0


KEYS = {Key(1), Key(2)}


@dataclasses.dataclass
class Link:
    after: Any
    number: int


def chain(length: int) -> Any:
    found = None
    for number in range(length):
        found = Link(found, number)
    return found


CHAIN = chain(5000)


def test_a_chain_of_objects_may_be_longer_than_pythons_stack() -> None:
    @bridge.fuse
    def scaled(x):
        return aten.mul(x, CHAIN.after.number)

    assert scaled(ms.Tensor([1.0])).asnumpy() == 4998.0


def test_objects_are_found_in_sets() -> None:
    numbers = {Key(1): 3.0}

    @bridge.fuse
    def scaled(x):
        even = sum(key.number for key in KEYS if key.is_even())
        return aten.mul(x, numbers[Key(1)] * even + (Key(2) in KEYS))

    assert scaled(ms.Tensor([1.0])).asnumpy() == 7.0


def test_what_an_object_keeps_is_seen_and_written() -> None:
    global calls
    calls = Keeps.total = 0
    torch.manual_seed(0)
    own, inner = Keeps(), Keeps()
    fused = bridge.fuse(inner)
    found = [fused(numbers(3, 4)) for _ in range(3)]
    assert (calls, Keeps.total, inner.seen) == (3, 6, [1, 2, 3])
    calls = Keeps.total = 0
    assert all(map(equal, found, [own(numbers(3, 4)) for _ in range(3)]))
    assert (inner.factor, inner.table["n"], own.factor) == (8.0, 3, 8.0)
    assert inner.lines == [inner.line, *[inner.other] * 3] and inner.best is inner.other
    assert inner.table["line"] is inner.line
    inner.line, own.line = (Line(4) for _ in range(2))
    with pytest.raises(RuntimeError, match=r"was not there when the program was made"):
        fused(numbers(3, 4))


def test_a_chain_of_functions_may_be_longer_than_pythons_stack() -> None:
    def around(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def outer(x: Any) -> Any:
            return inner(x)

        return outer

    function: Callable[[Any], Any] = aten.relu
    for _ in range(300):
        function = around(function)
    x = numbers(3, 4)
    assert equal(bridge.fuse(function)(x), aten.relu(x))


def test_what_an_object_cannot_keep_is_refused() -> None:
    holder = SimpleNamespace(line=Line(4), lines=[Line(4)], seen=[], last=None)

    @bridge.fuse
    def assigns(x: Any) -> Any:
        holder.last = [holder.line(x)]
        return x

    @bridge.fuse
    def appends(x: Any) -> Any:
        holder.lines.append(holder.line(x))
        return x

    with pytest.raises(AttributeError, match=r"SimpleNamespace\.last is assigned a tensor.* give it as a result"):
        assigns(numbers(3, 4))
    with pytest.raises(RuntimeError, match=r"puts a tensor into a list .* give it as a result"):
        appends(numbers(3, 4))
    assert holder.last is None and len(holder.lines) == 1 and isinstance(holder.lines[0], Line)


def test_an_object_in_a_graph_is_what_it_was_when_mindspore_compiled(context_mode: str) -> None:
    holder = SimpleNamespace(line=Line(4), scale=ms.Tensor(2.0), power=1)
    fused = bridge.fuse(lambda x: aten.pow(aten.mul(holder.line(x), holder.scale), holder.power))
    line = torch.nn.functional.linear

    def expected() -> torch.Tensor:
        x, weight, bias = (
            on_device(value.asnumpy()) for value in (numbers(3, 4), holder.line.weight, holder.line.bias)
        )
        return (line(x, weight, bias) * 2.0).cpu()

    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return fused(x)

    run = ms.jit(step) if context_mode == "graph" else step
    assert run(numbers(3, 4)).asnumpy().tobytes() == expected().numpy().tobytes()
    holder.line.weight.set_data(ms.Tensor(2 * data(4, 4)))
    assert run(numbers(3, 4)).asnumpy().tobytes() == expected().numpy().tobytes()


def test_a_method_of_a_cell_sees_twins_of_globals(context_mode: str) -> None:
    class Own(nn.Cell):
        def construct(self, x: Any) -> Any:
            return aten.mul(shared_line(x), shared_scale)

    fused = bridge.fuse(Own())
    x, weight, bias = (on_device(value.asnumpy()) for value in (numbers(3, 4), shared_line.weight, shared_line.bias))
    expected = torch.nn.functional.linear(x, weight, bias) * 3.0
    assert fused(numbers(3, 4)).asnumpy().tobytes() == expected.cpu().numpy().tobytes()


shared_line, shared_scale = Line(4), ms.Tensor(3.0)


class Trains:
    """Has a module of PyTorch's, not its Cell."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def loss(self, x: Any) -> Any:
        return aten.sum(self.module(x))


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
@pytest.mark.parametrize("is_method", [True, False])
def test_a_module_of_pytorchs_has_gradients_and_is_followed(is_method: bool, mode: int) -> None:
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 3).to(torch_device())
    net, x = bridge.cell(module), numbers(5, 4)

    def loss(x: Any) -> Any:
        return aten.sum(module(x))

    fused = bridge.fuse(Trains(module).loss if is_method else loss)

    def of_fused(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore, whose 2.8 differentiates functions only
        return fused(x)

    differentiate = ms.value_and_grad(of_fused, None, net.trainable_params())

    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    call = ms.jit(step) if mode == ms.GRAPH_MODE else step
    for _ in range(3):
        value, gradients = call(x)
        expected = module(on_device(x.asnumpy())).sum()
        assert value.asnumpy() == expected.item()
        for one, other in zip(gradients, torch.autograd.grad(expected, list(module.parameters())), strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.cpu().numpy())
        net.trainable_params()[0].set_data(ms.Tensor(module.weight.detach().cpu().numpy() * 2))


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_a_critic_that_is_no_cell_is_followed(mode: int) -> None:
    torch.manual_seed(0)
    critic, generator = torch.nn.Linear(4, 1), torch.nn.Sequential(torch.nn.Linear(4, 4))
    own = bridge.cell(critic.to(torch_device()))
    net, x = bridge.cell(generator.to(torch_device())), numbers(5, 4)
    differentiate = bridge.value_and_grad(lambda x: critic(net(x)).mean(), None, net.trainable_params())

    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    call = ms.jit(step) if mode == ms.GRAPH_MODE else step
    for factor in (1.0, 2.0, 3.0):
        own.weight.set_data(ms.Tensor(critic.weight.detach().cpu().numpy() * np.float32(factor)))
        expected = critic(generator(on_device(x.asnumpy()))).mean()
        found = torch.autograd.grad(expected, list(generator.parameters()))
        for one, other in zip(call(x)[1], found, strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.cpu().numpy())
