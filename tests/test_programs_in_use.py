"""A module in a program that goes on: weights that change between steps, several calls, threads, and errors.

Each in a graph, and by bridge.value_and_grad in both modes. tests/test_programs.py has the same for PyNative mode.
"""

from __future__ import annotations

import copy
import gc
import pathlib
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn
from torch.nn import functional as F

import bridge
from bridge import aten
from bridge import nn as tnn
from bridge.op import devices
from bridge.programs.settings import Settings
from shared import FailsInBackward, data

Differentiate = Callable[..., Callable[..., Any]]


def in_graph(value_and_grad: Any) -> Differentiate:
    def differentiated(function: Any, weights: Any) -> Any:
        differentiate = value_and_grad(function, None, weights)

        def step(x):
            return differentiate(x)

        return ms.jit(step)

    return differentiated


def in_one(function: Any, weights: Any) -> Any:
    return bridge.value_and_grad(function, None, weights)


WAYS = {"graph": in_graph(ms.value_and_grad), "in one": in_one, "graph, in one": in_graph(bridge.value_and_grad)}


@pytest.fixture(params=WAYS)
def differentiate(request: pytest.FixtureRequest) -> Differentiate:
    """What makes a function that gives a value and the gradients of weights."""
    return WAYS[request.param]


def mlp() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Linear(8, 4))


def device() -> str:
    return devices.torch_name(devices.target())


def in_torch(module: torch.nn.Module, x: ms.Tensor, function: Any = None) -> list[torch.Tensor]:
    """The value and the gradients of all parameters."""
    value = (function or module)(torch.from_numpy(x.asnumpy()).to(device()))
    return [value, *torch.autograd.grad(value, list(module.parameters()), torch.ones_like(value))]


def equal(own: ms.Tensor, expected: torch.Tensor) -> bool:
    return own.asnumpy().tobytes() == expected.detach().cpu().numpy().tobytes()


def same(found: Any, expected: list[torch.Tensor]) -> bool:
    value, gradients = found
    return all(equal(own, tensor) for own, tensor in zip((value, *gradients), expected, strict=True))


def test_a_module_is_called_twice_and_by_two_cells(differentiate: Differentiate) -> None:
    """Twice and not more often, because MindSpore may add three gradients in another order."""
    module = torch.nn.Linear(4, 4)
    reference = copy.deepcopy(module).to(device())
    first, second = bridge.cell(module), bridge.cell(module)

    def both(x):
        return second(aten.relu(first(x)))

    x = ms.Tensor(data(2, 4))
    found = differentiate(both, first.trainable_params())(x)
    assert same(found, in_torch(reference, x, lambda x: reference(F.relu(reference(x)))))


def test_weights_that_are_written_to_between_steps_are_seen(differentiate: Differentiate) -> None:
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))
    reference = mlp().to(device())
    step = differentiate(net, net.trainable_params())
    assert same(step(x), in_torch(reference, x))

    ms.ops.assign(net.parameters_dict()["0.weight"], ms.Tensor(data(8, 4, seed=1)))
    with torch.no_grad():
        reference.get_parameter("0.weight").copy_(torch.from_numpy(data(8, 4, seed=1)))
    assert same(step(x), in_torch(reference, x))

    for module in (net.module, reference):
        with torch.no_grad():
            module.get_parameter("3.bias").fill_(3.0)
    assert same(step(x), in_torch(reference, x))


def test_weights_that_are_given_other_data_between_steps_are_seen(tmp_path: pathlib.Path) -> None:
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))
    reference = mlp().to(device())
    step = in_one(net, net.trainable_params())
    ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
    saved = copy.deepcopy(reference.state_dict())
    assert same(step(x), in_torch(reference, x))

    net.parameters_dict()["0.weight"].set_data(ms.Tensor(data(8, 4, seed=1)))
    with torch.no_grad():
        reference.get_parameter("0.weight").copy_(torch.from_numpy(data(8, 4, seed=1)))
    assert same(step(x), in_torch(reference, x))

    ms.load_param_into_net(net, ms.load_checkpoint(str(tmp_path / "net.ckpt")))
    reference.load_state_dict(saved)
    assert same(step(x), in_torch(reference, x))


def test_data_of_another_shape_is_refused_where_it_is_given() -> None:
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))
    step = in_graph(ms.value_and_grad)(net, net.trainable_params())
    expected = in_torch(mlp().to(device()), x)
    weight = net.parameters_dict()["0.weight"]
    for given in (ms.ops.zeros((8, 5)), ms.ops.zeros((1, 4)), 2.0):
        with pytest.raises(ValueError, match=r"set_data: 0\.weight shares its memory with .* of shape \[8, 4\]"):
            weight.set_data(given)
        assert same(step(x), expected)


@pytest.mark.parametrize("make", [lambda: bridge.cell(torch.nn.Linear(4, 3)), lambda: tnn.Linear(4, 3)])
def test_a_graph_follows_another_dtype(make: Callable[[], Any], differentiate: Differentiate) -> None:
    torch.manual_seed(0)
    net = make()
    reference: Any = torch.nn.Linear(4, 3).to(device())
    reference.load_state_dict(net.module.state_dict())

    def summed(x):
        return aten.sum(net(x))

    step = differentiate(summed, net.trainable_params())
    for ms_dtype, torch_dtype in (
        (ms.float32, torch.float32),
        (ms.float64, torch.float64),
        (ms.float32, torch.float32),
    ):
        for parameter in net.get_parameters():
            parameter.set_dtype(ms_dtype)
        reference.to(torch_dtype)
        x = ms.Tensor(data(2, 4)).astype(ms_dtype)
        for factor in (1, 2):
            for parameter, tensor in zip(net.get_parameters(), reference.parameters(), strict=True):
                parameter.set_data(parameter * factor)
                tensor.data *= factor
            assert same(step(x), in_torch(reference, x, lambda x: reference(x).sum()))
            assert net.module.weight.dtype == torch_dtype


@pytest.mark.parametrize("shapes", [((1,), ()), ((1, 1), (1,)), ((4, 1), (4,)), ((3, 1, 1), (3,))], ids=str)
def test_ones_at_the_end_of_a_shape_do_not_matter(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """As MindSpore loads checkpoints."""
    saved, own = shapes
    module: Any = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.ones(own))
    net = bridge.cell(module)
    ms.load_param_into_net(net, {"weight": ms.Parameter(np.full(saved, 5, np.float32), name="weight")})
    assert net.weight.shape == own and bool((module.weight == 5).all())
    if own == (1,):
        net.weight.set_data(2.0)
        assert net.weight.asnumpy() == [2.0] and module.weight.tolist() == [2.0]


@pytest.mark.parametrize("is_graph", [False, True])
def test_an_optimizer_follows_another_dtype(is_graph: bool) -> None:
    class Scales(tnn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = ms.Parameter(ms.Tensor(data(4)), name="scale")

        def construct(self, x):
            return aten.mul(x, self.scale)

    net, tensor = Scales(), torch.nn.Parameter(torch.from_numpy(data(4)).to(device()))
    optimizer = bridge.optim.SGD(net.trainable_params(), 0.5)

    def loss_of(x):
        return aten.sum(net(x))

    differentiate = ms.value_and_grad(loss_of, None, optimizer.parameters)

    def step(x):
        loss, gradients = differentiate(x)
        optimizer(gradients)
        return loss

    call = ms.jit(step) if is_graph else step
    for ms_dtype, torch_dtype in (
        (ms.float32, torch.float32),
        (ms.float64, torch.float64),
        (ms.float32, torch.float32),
    ):
        net.to(ms_dtype)
        tensor.data = tensor.data.to(torch_dtype)
        for _ in range(2):
            call(ms.Tensor(data(2, 4)).astype(ms_dtype))
            gradient = torch.from_numpy(data(2, 4)).to(device(), torch_dtype).sum(0)
            tensor.data -= 0.5 * gradient
            assert equal(net.scale, tensor)


def halved_data(net: Any) -> None:
    net[0].weight.data = net[0].weight.data * 0.5


def halved_by_set(net: Any) -> None:
    with torch.no_grad():
        net[0].weight.set_(net[0].weight.detach() * 0.5)


def halved_vector(net: Any) -> None:
    vector = torch.nn.utils.parameters_to_vector(net.parameters()) * 0.5
    torch.nn.utils.vector_to_parameters(vector, net.parameters())


def other_buffer(net: Any) -> None:
    net[1].running_mean = net[1].running_mean + 1


def buffers_data(net: Any) -> None:
    net[1].running_mean.data = net[1].running_mean + 1


def other_weight(net: Any) -> None:
    net[3].weight = torch.nn.Parameter(net[3].weight.detach() * 0.5)


def in_shared_memory(net: Any) -> None:
    net.share_memory()


ASSIGNED = [halved_data, halved_by_set, halved_vector, other_buffer, buffers_data, other_weight, in_shared_memory]


@pytest.mark.parametrize("change", ASSIGNED)
def test_what_pytorch_assigns_between_steps_is_seen(
    change: Callable[[Any], None], differentiate: Differentiate
) -> None:
    """Also once a call in PyNative mode has seen it before the graph."""
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))
    reference: Any = mlp().to(device())
    step = differentiate(net, net.trainable_params())
    for is_called_between in (False, True):
        assert same(step(x), in_torch(reference, x))
        for module in (net.module, reference):
            change(module)
        if is_called_between:
            assert equal(net(x), reference(torch.from_numpy(x.asnumpy()).to(device())))
        assert same(step(x), in_torch(reference, x))
        ms.ops.assign(net.parameters_dict()["3.bias"], ms.Tensor(data(4)))
        with torch.no_grad():
            reference[3].bias.copy_(torch.from_numpy(data(4)))
        assert same(step(x), in_torch(reference, x))
    for name, tensor in reference.state_dict().items():
        assert torch.equal(net.module.state_dict()[name], tensor), name
        assert equal(net.parameters_dict()[name], tensor), name


def all_data(net: Any) -> Callable[[], None]:
    """As an average of the weights is tried."""
    kept = [(parameter, parameter.data) for parameter in net.parameters()]

    def put_back() -> None:
        for parameter, before in kept:
            parameter.data = before

    for parameter, before in kept:
        parameter.data = before * 0.5
    return put_back


def exchanged_data(net: Any) -> Callable[[], None]:
    one, other = net[0].bias, net[1].weight

    def exchange() -> None:
        one.data, other.data = other.data, one.data

    exchange()
    return exchange


def a_buffer(net: Any) -> Callable[[], None]:
    before = net[1].running_mean
    net[1].running_mean = before + 1
    return lambda: setattr(net[1], "running_mean", before)


def a_weight(net: Any) -> Callable[[], None]:
    before = net[3].weight
    net[3].weight = torch.nn.Parameter(before.detach() * 0.5)
    return lambda: setattr(net[3], "weight", before)


@pytest.mark.parametrize("change", [all_data, exchanged_data, a_buffer, a_weight])
def test_what_pytorch_puts_back_is_what_it_was(
    change: Callable[[Any], Callable[[], None]], differentiate: Differentiate
) -> None:
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))
    reference: Any = mlp().to(device())
    step = differentiate(net, net.trainable_params())
    for _ in range(2):
        assert same(step(x), in_torch(reference, x))
        ms.ops.assign(net.parameters_dict()["3.bias"], ms.Tensor(data(4)))
        with torch.no_grad():
            reference[3].bias.copy_(torch.from_numpy(data(4)))
        ms.runtime.synchronize()  # PyTorch does not wait for what MindSpore writes
        put_back = [change(module) for module in (net.module, reference)]
        assert same(step(x), in_torch(reference, x))
        for back in put_back:
            back()
        assert same(step(x), in_torch(reference, x))
    for name, tensor in reference.state_dict().items():
        assert equal(net.parameters_dict()[name], tensor), name


def test_pytorchs_modules_load_the_state_of_a_cell(differentiate: Differentiate) -> None:
    net, other = bridge.cell(mlp()), mlp().to(device())
    differentiate(net, net.trainable_params())(ms.Tensor(data(3, 4)))
    state: Any = net.state_dict()
    other.load_state_dict(state)
    ms.runtime.synchronize()
    for name, tensor in net.module.state_dict().items():
        assert equal(net.parameters_dict()[name], tensor) and torch.equal(tensor, other.state_dict()[name]), name
    with pytest.raises(RuntimeError, match=r"size mismatch for 0\.bias: .* the shape in current model"):
        torch.nn.Sequential(torch.nn.Linear(4, 9)).load_state_dict(state, strict=False)


def test_data_that_was_taken_stays_what_it_was(differentiate: Differentiate) -> None:
    """Before the first call and between calls, and when the network is gone."""
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))
    reference: Any = mlp().to(device())
    step = differentiate(net, net.trainable_params())
    taken: list[list[torch.Tensor]] = [[], []]
    for _ in range(3):
        for module, tensors in zip((net.module, reference), taken, strict=True):
            tensors.append(module[0].weight.data)
            tensors.append(module[0].weight.detach()[1:])
        assert same(step(x), in_torch(reference, x))
        for module, tensors in zip((net.module, reference), taken, strict=True):
            tensors.append(module[0].weight.data.flatten())
            module[0].weight.data = module[0].weight.data * 0.5
        assert same(step(x), in_torch(reference, x))
        assert all(torch.equal(own, expected) for own, expected in zip(*taken, strict=True))
    weight = net.parameters_dict()["0.weight"]
    del net, step, module, tensors
    gc.collect()
    assert np.array_equal(weight.asnumpy(), reference[0].weight.detach().cpu().numpy())
    assert all(torch.equal(own, expected) for own, expected in zip(*taken, strict=True))


def test_the_same_memory_in_another_order_is_seen(differentiate: Differentiate) -> None:
    own: Any = mlp()
    net, x = bridge.cell(own), ms.Tensor(data(3, 4))
    reference: Any = mlp().to(device())
    step = differentiate(net, net.trainable_params())
    assert same(step(x), in_torch(reference, x))
    for module in (own, reference):
        module[0].weight.data = module[0].weight.data.view(4, 8).T
    reference[0].weight.data = reference[0].weight.data.contiguous()  # as MindSpore has it: other kernels, other bits
    assert same(step(x), in_torch(reference, x))


def test_what_both_frameworks_assign_between_steps_is_seen(differentiate: Differentiate) -> None:
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))
    reference: Any = mlp().to(device())
    step = differentiate(net, net.trainable_params())
    step(x)
    reference(torch.from_numpy(x.asnumpy()).to(device()))
    weight = data(8, 4, seed=1)
    halved_vector(net.module)
    net.parameters_dict()["0.weight"].set_data(ms.Tensor(weight))
    halved_vector(reference)
    with torch.no_grad():
        reference[0].weight.copy_(torch.from_numpy(weight))
    assert same(step(x), in_torch(reference, x))


def test_what_pytorch_assigns_is_in_lists_of_parameters(tmp_path: pathlib.Path) -> None:
    """A checkpoint, an optimizer and another Cell, each without a call before."""
    module: Any = mlp()
    net = bridge.cell(module)

    def assigned(value: float) -> np.ndarray:
        module[0].weight.data = torch.full((8, 4), float(value), device=device())
        module[1].running_mean = torch.full((8,), float(value), device=device())
        return np.full((8, 4), value, np.float32)

    expected = assigned(2)
    ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
    saved = ms.load_checkpoint(str(tmp_path / "net.ckpt"))
    assert np.array_equal(saved["0.weight"].asnumpy(), expected)
    assert np.array_equal(saved["1.running_mean"].asnumpy(), expected[:, 0])

    weight = net.parameters_dict()["0.weight"]
    for value, use in enumerate((lambda: bridge.optim.SGD([weight], 0.1), lambda: bridge.cell(module))):
        expected = assigned(value)
        use()
        assert np.array_equal(weight.asnumpy(), expected)
        assert np.array_equal(module[0].weight.detach().cpu().numpy(), expected)


@pytest.mark.parametrize("kind", ["function", "Cell"])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_pytorch_assigns_is_in_graphs_that_have_a_parameter_and_no_module(is_first: bool, kind: str) -> None:
    """Compiled before the graph that has the module, or after it."""
    module: Any = mlp()
    net, x = bridge.cell(module), ms.Tensor(data(3, 4))
    weight = net.parameters_dict()["0.weight"]

    @ms.jit
    def forward(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    class Sum(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return (self.weight * 2).sum() + x

    cell = Sum()

    @ms.jit
    def function(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return (weight * 2).sum() + x

    if kind == "Cell":
        ms.set_context(mode=ms.GRAPH_MODE)
    own = cell if kind == "Cell" else function
    if is_first:
        own(ms.Tensor(0.0))
    forward(x)
    for value in (2.0, 3.0, 4.0):
        module[0].weight.data = torch.full((8, 4), value, device=device())
        assert own(ms.Tensor(0.0)).asnumpy() == 2 * 32 * value


def test_methods_of_objects_that_come_and_go() -> None:
    """A new object may have the id of one that is gone, by which MindSpore knows it."""

    class Owner:
        def __init__(self, seed: int) -> None:
            torch.manual_seed(seed)
            self.module = torch.nn.Linear(4, 2)
            self.net = bridge.cell(self.module)

        @ms.jit
        def call(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return self.net(x)

    def check(owner: Owner) -> None:
        for _ in range(2):
            expected = owner.module(torch.from_numpy(x).to(device())).detach().cpu().numpy()
            assert np.array_equal(owner.call(ms.Tensor(x)).asnumpy(), expected)

    x, ids = data(3, 4), set()
    for seed in range(6):
        owner = Owner(seed)
        ids.add(id(owner))
        check(owner)
        del owner
    others: list[Owner] = []  # these fill the places that are free
    while len(others) < 10_000 and not (others and id(others[-1]) in ids):
        others.append(Owner.__new__(Owner))
    again = others.pop()
    assert id(again) in ids
    again.__init__(7)  # type: ignore[misc]  # it was made without
    check(again)


def test_what_only_pynative_mode_meets_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attribute that a loop sets in each step, of a module that a graph has."""
    module: Any = mlp()
    net, x = bridge.cell(module), ms.Tensor(data(3, 4))

    @ms.jit
    def evaluated(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    evaluated(x)
    compared = 0
    own = Settings.others

    def others(self: Settings, before: Settings) -> set[tuple[str, str]]:
        nonlocal compared
        compared += 1
        return own(self, before)

    monkeypatch.setattr(Settings, "others", others)
    counts = []
    for step in range(12):
        compared, module.progress = 0, step
        net(x)
        counts.append(compared)
    assert counts[-1] == counts[1]
    expected = net(x).asnumpy()
    assert np.array_equal(evaluated(x).asnumpy(), expected)


def test_a_network_that_has_other_parts_now_does_not_stop_others_graphs() -> None:
    module: Any = mlp()
    net, other, x = bridge.cell(module), bridge.cell(mlp()), ms.Tensor(data(3, 4))
    steps = [in_graph(ms.value_and_grad)(cell, cell.trainable_params()) for cell in (net, other)]
    for step in steps:
        step(x)
    module[3] = torch.nn.Linear(8, 6)
    assert same(steps[1](x), in_torch(mlp().to(device()), x))


def test_a_network_without_data_does_not_stop_others_graphs() -> None:
    module = mlp()
    net, other, x = bridge.cell(module), bridge.cell(mlp()), ms.Tensor(data(3, 4))
    steps = [in_graph(ms.value_and_grad)(cell, cell.trainable_params()) for cell in (net, other)]
    for step in steps:
        step(x)
    module.to("meta")
    assert same(steps[1](x), in_torch(mlp().to(device()), x))
    for use in (steps[0], net):
        with pytest.raises(ValueError, match=r"0\.weight has no data"):
            use(x)


@pytest.mark.parametrize("make", [lambda: bridge.cell(mlp()), lambda: bridge.cell(mlp().to(device()))])
def test_a_function_is_applied_to_the_modules(make: Callable[[], Any], differentiate: Differentiate) -> None:
    net, reference, x, met = make(), mlp().to(device()), ms.Tensor(data(3, 4)), []

    def init(part: Any) -> None:
        met.append(type(part).__name__)
        if isinstance(part, torch.nn.Linear):
            torch.nn.init.constant_(part.weight, 0.5)

    step = differentiate(net, net.trainable_params())
    step(x)
    reference(torch.from_numpy(x.asnumpy()).to(device()))
    assert net.apply(init) is net
    assert met == [*(type(part).__name__ for part in net.module.children()), type(net.module).__name__, "ModuleCell"]
    reference.apply(init)
    assert same(step(x), in_torch(reference, x))


scripted: Any = torch.jit.script


def test_a_scripted_module_with_buffers(differentiate: Differentiate) -> None:
    net, x = bridge.cell(scripted(mlp())), ms.Tensor(data(3, 4))
    reference: Any = mlp().to(device())
    step = differentiate(net, net.trainable_params())
    for _ in range(2):
        assert same(step(x), in_torch(reference, x))
    assert equal(net.parameters_dict()["1.running_mean"], reference.get_buffer("1.running_mean"))


def test_copies_are_differentiated(differentiate: Differentiate) -> None:
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))
    expected = in_torch(copy.deepcopy(net.module).to(device()), x)
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert same(differentiate(copied, copied.trainable_params())(x), expected)


class TwoResults(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.used(x), self.unused(x)


def test_a_result_is_not_used(differentiate: Differentiate) -> None:
    net, x = bridge.cell(TwoResults()), ms.Tensor(data(2, 4))
    reference = copy.deepcopy(net.module).to(device())

    def one(x):
        return net(x)[0]

    value, gradients = differentiate(one, net.trainable_params())(x)
    assert same((value, gradients[:2]), in_torch(reference.get_submodule("used"), x))
    assert not any(gradient.asnumpy().any() for gradient in gradients[2:])


def test_an_error_in_forward_leaves_the_next_step_right() -> None:
    """Not in a graph: MindSpore does not run a graph again after an error, with its own operators neither."""
    if devices.target() == "GPU":
        pytest.skip("a wrong index ends CUDA's context, in PyTorch too")
    table = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 4))
    net, reference = bridge.cell(table), copy.deepcopy(table)
    step = in_one(net, net.trainable_params())
    for _ in range(2):
        with pytest.raises(IndexError, match="index out of range in self"):
            step(ms.Tensor([1, 7]))
        assert same(step(ms.Tensor([1, 4])), in_torch(reference, ms.Tensor([1, 4])))


def test_an_error_in_backward_leaves_the_next_step_right() -> None:
    """A graph has no Python in backward that could fail."""
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))
    with pytest.raises(ZeroDivisionError, match="mine"):
        bridge.value_and_grad(bridge.cell(FailsInBackward()))(x)
    expected = in_torch(copy.deepcopy(net.module).to(device()), x)
    assert same(in_one(net, net.trainable_params())(x), expected)


def test_four_threads(differentiate: Differentiate) -> None:
    net, x = bridge.cell(mlp().eval()), ms.Tensor(data(3, 4))
    expected = in_torch(copy.deepcopy(net.module).to(device()), x)
    step = differentiate(net, net.trainable_params())
    right = [same(step(x), expected)]

    def work() -> None:
        for _ in range(20):
            right.append(same(step(x), expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 81


def test_what_a_step_saves_is_freed() -> None:
    class Remembers(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.exp()
            alive.append(weakref.ref(y))
            return y * y

    alive: list[Any] = []
    step = bridge.value_and_grad(bridge.cell(Remembers()))
    results = [step(ms.Tensor(data(3))) for _ in range(3)]
    gc.collect()
    assert len(results) == 3
    assert [ref() for ref in alive] == [None] * 3


def test_many_steps_end_where_pytorchs_do(differentiate: Differentiate) -> None:
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))
    reference = copy.deepcopy(net.module).to(device())
    optimizer = bridge.optim.Adam(net.trainable_params(), 0.01)
    torch_optimizer = torch.optim.Adam(reference.parameters(), 0.01)
    step = differentiate(net, optimizer.parameters)
    for _ in range(200):
        _, gradients = step(x)
        optimizer(gradients)
        _, *found = in_torch(reference, x)
        for parameter, gradient in zip(reference.parameters(), found, strict=True):
            parameter.grad = gradient
        torch_optimizer.step()
    for name, tensor in reference.state_dict().items():
        np.testing.assert_array_equal(net.parameters_dict()[name].asnumpy(), tensor.cpu().numpy())


def _raises(x: ms.Tensor) -> ms.Tensor:
    raise ValueError("the user's own")


AFTER = {
    "an error of the user's": _raises,
    "an error of the bridge's": lambda x: aten.mm(x, x),
    "an error of MindSpore's": lambda x: ms.ops.matmul(x, ms.Tensor(np.ones((7, 7), np.float32))),
}


@pytest.mark.parametrize("rest", AFTER.values(), ids=AFTER)
@pytest.mark.parametrize("gradient", [ms.grad, ms.value_and_grad])
def test_gradients_work_after_an_error(gradient: Any, rest: Callable[[ms.Tensor], ms.Tensor]) -> None:
    module = torch.nn.Linear(3, 4).to(devices.torch_name(devices.target()))
    cell, x = bridge.cell(module), ms.Tensor(data(2, 3))
    with pytest.raises((ValueError, RuntimeError)):
        gradient(lambda x: rest(cell(x)))(x)
    expected = torch.ones(2, 4, device=module.weight.device) @ module.weight
    assert np.array_equal(ms.grad(lambda x: cell(x).sum())(x).asnumpy(), expected.detach().cpu().numpy())


class Fails(ms.nn.Cell):
    def construct(self, x):
        return _raises(x)


def test_a_step_works_after_another_ones_error() -> None:
    """MindSpore's Cells with gradients begin to record by themselves."""
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))

    def step(last: ms.nn.Cell) -> ms.nn.TrainOneStepCell:
        network = ms.nn.SequentialCell(net, last)
        return ms.nn.TrainOneStepCell(network, ms.nn.SGD(net.trainable_params(), 0.1)).set_train()

    fails, works = step(Fails()), step(ms.nn.ReLU())
    with pytest.raises(ValueError, match="the user's own"):
        fails(x)
    assert works(x).asnumpy().any()


def replaced_weight(net: torch.nn.Sequential) -> None:
    net[0].weight = torch.nn.Parameter(torch.from_numpy(data(4, 3, seed=9)))


def assigned_state(net: torch.nn.Sequential) -> None:
    net.load_state_dict({name: torch.full_like(tensor, 0.5) for name, tensor in net.state_dict().items()}, assign=True)


def pruned(net: torch.nn.Sequential) -> None:
    torch.manual_seed(3)
    torch.nn.utils.prune.random_unstructured(net[0], "weight", 0.5)


@pytest.mark.parametrize("change", [replaced_weight, assigned_state, pruned])
@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_parameters_in_the_place_of_others_are_followed(
    change: Callable[[torch.nn.Sequential], None], mode: int
) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    expected = copy.deepcopy(module)
    net = bridge.cell(module)
    x = data(5, 3)
    net(ms.Tensor(x))
    device = next(module.parameters()).device
    expected.to(device)
    for changed in (module, expected):
        change(changed)
    expected.to(device)
    theirs = torch.optim.SGD(expected.parameters(), 0.1)
    optimizer = bridge.optim.SGD(net.trainable_params(), 0.1)
    ms.set_context(mode=mode)
    step = ms.nn.TrainOneStepCell(net, optimizer)
    for _ in range(2):
        theirs.zero_grad()
        expected(torch.from_numpy(x).to(device)).backward(torch.ones(5, 2, device=device))
        theirs.step()
        step(ms.Tensor(x))
    ms.runtime.synchronize()  # PyTorch does not wait for MindSpore
    for (name, own), tensor in zip(module.named_parameters(), expected.parameters(), strict=True):
        assert torch.equal(own, tensor), name
    assert np.array_equal(net(ms.Tensor(x)).asnumpy(), expected(torch.from_numpy(x).to(device)).detach().cpu().numpy())


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_other_parts_are_refused(mode: int) -> None:
    ms.set_context(mode=mode)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    net = bridge.cell(module)
    x = ms.Tensor(data(5, 3))
    assert net(x).shape == (5, 2)
    module[1] = torch.nn.Linear(4, 6)
    uses: list[Callable[[], Any]] = [net.trainable_params, net.parameters_dict]
    if mode == ms.PYNATIVE_MODE:  # a compiled graph goes on as it is
        uses.append(lambda: net(x))
    for use in uses:
        with pytest.raises(ValueError, match=r"1\.weight: PyTorch's module has this parameter since"):
            use()
    assert bridge.cell(module)(x).shape == (5, 6)


def test_parameters_that_are_tied_later_are_refused() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))
    net = bridge.cell(module)
    x = ms.Tensor(data(5, 3))
    net(x)
    module[2].weight = module[0].weight
    with pytest.raises(ValueError, match=r"0\.weight and 2\.weight: PyTorch's module has one parameter"):
        net(x)
    net = bridge.cell(module)
    assert list(net.parameters_dict()) == ["0.weight", "0.bias", "2.bias"]  # under its first name
    assert net(x).shape == (5, 3)


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_another_dtype_is_refused_until_there_is_another_cell(mode: int) -> None:
    ms.set_context(mode=mode)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    net = bridge.cell(module)
    x = data(5, 3)
    assert net(ms.Tensor(x)).dtype == ms.float32
    module.double()
    uses: list[Callable[[], Any]] = [
        lambda: net(ms.Tensor(x.astype(np.float64))),
        lambda: bridge.optim.SGD(net.trainable_params(), 0.1),
    ]
    for use in uses:
        with pytest.raises(ValueError, match=r"0\.weight: PyTorch's tensor has another shape or dtype now than"):
            use()
    expected = copy.deepcopy(module)
    net = bridge.cell(module)
    optimizer = bridge.optim.SGD(net.trainable_params(), 0.1)
    inputs = torch.from_numpy(x.astype(np.float64)).to(next(module.parameters()).device)
    ms.nn.TrainOneStepCell(net, optimizer)(ms.Tensor(x.astype(np.float64)))
    expected.to(inputs.device)
    result = expected(inputs)
    result.backward(torch.ones_like(result))
    torch.optim.SGD(expected.parameters(), 0.1).step()
    for own, tensor in zip(module.parameters(), expected.parameters(), strict=True):
        assert own.dtype == torch.float64 and torch.equal(own, tensor)


def test_another_parameter_for_one_of_pytorchs_is_refused() -> None:
    module = torch.nn.Linear(3, 2)
    net, x = bridge.cell(module), ms.Tensor(data(5, 3))
    before = net(x)
    with pytest.raises(
        AttributeError, match=r"ModuleCell\.weight stays the Parameter that shares its memory with PyTorch's"
    ):
        net.weight = ms.Parameter(ms.ops.zeros((2, 3)), name="weight")
    assert np.array_equal(net(x).asnumpy(), before.asnumpy())
    net.weight = net.weight
    net.weight.set_data(ms.ops.zeros((2, 3)))
    assert np.array_equal(net(x).asnumpy()[0], module.bias.detach().cpu().numpy())


class WithHead(torch.nn.Module):
    heads = 1

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(4, 3)
        self.fc = torch.nn.Linear(3, 2)
        self._fc = torch.nn.Linear(2, 2)
        self.register_buffer("positions", torch.ones(1), persistent=False)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._fc(self.fc(self.body(x))) * self.scale * self.positions


PARTS: dict[str, Callable[[], Any]] = {
    "a Cell": lambda: nn.Dense(3, 5),
    "a layer": lambda: tnn.Linear(3, 5),
    "a module": lambda: torch.nn.Linear(3, 5),
    "a Parameter": lambda: ms.Parameter(ms.ops.ones(3), name="own"),
    "a tensor": lambda: ms.ops.ones(3),
    "a buffer": lambda: tnn.Buffer(ms.ops.ones(3)),
    "a number": lambda: 1.0,
    "None": lambda: None,
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["fc", "_fc", "positions", "scale", "heads", "forward"])
def test_what_the_module_has_is_not_assigned(name: str, part: str, tmp_path: pathlib.Path) -> None:
    net, x = bridge.cell(WithHead()), ms.Tensor(data(5, 4))
    before, listed = net(x).asnumpy(), list(net.parameters_dict())
    words = rf"ModuleCell takes no other {name}: its `module` has it.*`module\.{name} = \.\.\.`, then `bridge\.cell"
    with pytest.raises(AttributeError, match=words):
        setattr(net, name, PARTS[part]())
    with pytest.raises(AttributeError, match=words):
        delattr(net, name)
    assert np.array_equal(net(x).asnumpy(), before) and list(net.parameters_dict()) == listed
    ms.save_checkpoint(net, str(tmp_path / "net.ckpt"))
    assert list(ms.load_checkpoint(str(tmp_path / "net.ckpt"))) == listed


INSERTED: dict[str, Callable[[Any], Any]] = {
    "None": lambda net: setattr(net, "bias", None),
    "a number": lambda net: setattr(net, "bias", 1.0),
    "a Cell": lambda net: setattr(net, "bias", nn.ReLU()),
    "deleted": lambda net: delattr(net, "bias"),
    "inserted": lambda net: net.insert_param_to_cell("bias", ms.Parameter(ms.ops.zeros(2), name="bias")),
    "a child": lambda net: net.insert_child_to_cell("bias", nn.ReLU()),
}


@pytest.mark.parametrize("change", INSERTED)
@pytest.mark.parametrize("make", [lambda: bridge.cell(torch.nn.Linear(3, 2)), lambda: bridge.fuse(tnn.Linear(3, 2))])
def test_a_parameter_is_not_taken_out(make: Callable[[], Any], change: str) -> None:
    net, x = make(), ms.Tensor(data(5, 3))
    before = net(x).asnumpy()
    with pytest.raises(AttributeError, match=r"Cell\.bias stays the Parameter.* before bridge\.(cell|fuse)"):
        INSERTED[change](net)
    assert [parameter.name for parameter in net.trainable_params()] == ["weight", "bias"]
    assert np.array_equal(net(x).asnumpy(), before)
    net.bias = ms.ops.zeros(2)
    assert np.array_equal(net(x).asnumpy(), (net(x) - net.bias).asnumpy())


def test_parts_are_not_inserted_under_the_modules_names() -> None:
    net = bridge.cell(WithHead())
    for insert in (
        lambda: net.insert_child_to_cell("fc", nn.Dense(3, 5)),
        lambda: net.insert_param_to_cell("scale", ms.Parameter(ms.ops.ones(1), name="scale")),
        lambda: net.register_buffer("positions", ms.ops.ones(1)),
    ):
        with pytest.raises(AttributeError, match="ModuleCell takes no other"):
            insert()
    assert not net.name_cells()


def test_other_names_are_the_cells_own() -> None:
    net, x = bridge.cell(torch.nn.Linear(3, 2)), ms.Tensor(data(5, 3))
    before = net(x).asnumpy()
    net.mark, net.type, net._private = 3, "linear", [4]
    net.child, net.own = nn.Dense(2, 2), ms.Parameter(ms.ops.ones(1), name="own")
    net.tied = net.weight
    net.insert_child_to_cell("other", nn.ReLU())
    net.phase, net.training, net.requires_grad, net.pipeline_stage, net.cell_init_args = "train", True, True, 1, ""
    net.add_flags(sink_mode=True)
    net.set_jit_config(ms.JitConfig())
    net.update_parameters_name("net.")
    assert [one.name for one in net.get_parameters()] == [
        "net.weight", "net.bias", "net.own", "net.child.weight", "net.child.bias",
    ]  # fmt: skip
    net.child = nn.Dense(2, 2, has_bias=False)
    net.own = None
    del net.mark, net.other
    assert list(net.name_cells()) == ["child"] and not hasattr(net, "mark")
    assert np.array_equal(net(x).asnumpy(), before)


def test_another_head_is_the_modules() -> None:
    module = WithHead()
    module.fc, module._fc = torch.nn.Linear(3, 7), torch.nn.Linear(7, 7)
    net = bridge.cell(module)
    assert net(ms.Tensor(data(5, 4))).shape == (5, 7)
    assert net.parameters_dict()["fc.weight"].shape == (7, 3)


COPIES: dict[str, Callable[[Any], Any]] = {
    "copied": copy.deepcopy,
    "pickled": lambda net: pickle.loads(pickle.dumps(net)),
}
MADE: dict[str, Callable[[], Any]] = {
    "a module": lambda: bridge.cell(torch.nn.Linear(3, 3)),
    "a layer": lambda: tnn.Linear(3, 3),
    "a module around": lambda: Around(bridge.cell(torch.nn.Linear(3, 3))),
    "a layer around": lambda: Around(tnn.Linear(3, 3)),
}


class Around(nn.Cell):
    """A Cell with another name for a Parameter of a Cell inside it, which `inner` is."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.before = inner.weight
        self.inner = inner

    @property
    def weight(self) -> ms.Parameter:
        return self.inner.weight

    @property
    def module(self) -> torch.nn.Module:
        return self.inner.module

    def construct(self, x: Any) -> Any:
        return self.inner(x) @ self.before


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
class TestCopies:
    """What MindSpore keeps in a copy of a Cell is kept."""

    def test_frozen_parameters(self, make: Callable[[], Any], copied: Callable[[Any], Any]) -> None:
        net = make()
        names = [one.name for one in net.trainable_params()]
        net.weight.requires_grad = False
        found = copied(net)
        assert [one.name for one in found.trainable_params()] == names[1:]
        assert not found.module.weight.requires_grad and found.module.bias.requires_grad
        net.weight.requires_grad = True
        assert [one.name for one in copied(net).trainable_params()] == names

    def test_new_data(self, make: Callable[[], Any], copied: Callable[[Any], Any]) -> None:
        net = make()
        net.weight.data = ms.ops.ones((3, 3))
        found = copied(net)
        assert found.module.weight.sum() == 9 and found.weight.asnumpy().sum() == 9

    def test_tied_parameters(self, make: Callable[[], Any], copied: Callable[[Any], Any]) -> None:
        net, x = Around(make()), ms.Tensor(data(2, 3))
        expected = net(x).asnumpy()
        found = copied(net)
        assert found.before is found.weight and found.before is not net.before
        assert [one.name for one in found.get_parameters()] == [one.name for one in net.get_parameters()]
        found.before.set_data(ms.ops.zeros((3, 3)))
        assert not found(x).asnumpy().any() and not found.module.weight.any()
        assert np.array_equal(net(x).asnumpy(), expected)

    def test_what_the_cell_has_of_its_own(self, make: Callable[[], Any], copied: Callable[[Any], Any]) -> None:
        net, x = make(), ms.Tensor(data(2, 3))
        net.mark, net.itself = [5], [net]
        net.child, net.own, net.tied = tnn.Linear(2, 2), ms.Parameter(ms.ops.ones(1), name="own"), net.weight
        net.register_forward_hook(_nothing_of)
        net.set_grad()
        net.add_flags(sink_mode=True)
        found = copied(net)
        assert found.mark == [5] and found.itself[0] is found and found.sink_mode and found.requires_grad
        assert found.tied is found.weight and found.own is not net.own and found.child is not net.child
        assert [one.name for one in found.get_parameters()] == [one.name for one in net.get_parameters()]
        assert not found(x).asnumpy().any()
        found.mark.append(6)
        assert net.mark == [5]


@pytest.mark.parametrize("make", [MADE["a module"], MADE["a layer"]])
@pytest.mark.parametrize("around", [lambda net: net, lambda net: nn.SequentialCell(net)])
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_keeps_its_dtype(
    make: Callable[[], Any], around: Callable[[Any], Any], copied: Callable[[Any], Any]
) -> None:
    net, x = around(make()).to_float(ms.float16), ms.Tensor(data(2, 3))
    expected = net(x)
    assert expected.dtype == ms.float16
    for found in (copied(net), copied(nn.SequentialCell(net))):
        for run in (found, ms.jit(found)):
            assert run(x).dtype == ms.float16
            assert np.array_equal(run(x).asnumpy(), expected.asnumpy())


def _nothing_of(cell: Any, inputs: Any, result: Any) -> Any:
    return result * 0


def test_hooks_of_the_backward_pass_are_copied() -> None:
    net, x = bridge.cell(torch.nn.Linear(3, 3)), ms.Tensor(data(2, 3))
    seen: list[Any] = []
    net.register_backward_hook(lambda cell, inputs, outputs: seen.append(cell))
    ms.grad(net, None, net.trainable_params())(x)
    found = copy.deepcopy(net)
    ms.grad(found, None, found.trainable_params())(x)
    assert len(seen) == 2  # MindSpore gives them the Cell's name


def test_a_copy_is_recomputed_with_its_own_parameters() -> None:
    net, x = bridge.cell(torch.nn.Linear(3, 3)), ms.Tensor(data(2, 3))
    net.recompute()
    found = copy.deepcopy(net)
    for parameter in found.trainable_params():
        parameter.set_data(parameter * 0)
    value, gradients = ms.value_and_grad(found, None, found.trainable_params())(x)
    assert not value.asnumpy().any() and gradients[0].asnumpy().any()
    assert net(x).asnumpy().any()


def test_hooks_that_cannot_be_pickled_are_not() -> None:
    net = bridge.cell(torch.nn.Linear(3, 3))
    net.register_forward_hook(lambda cell, inputs, result: None)
    assert copy.deepcopy(net)(ms.Tensor(data(2, 3))).shape == (2, 3)
    with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
        pickle.dumps(net)


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_a_copy_has_graphs_of_its_own(mode: int) -> None:
    ms.set_context(mode=mode)
    net, x = bridge.cell(torch.nn.Linear(3, 3)), ms.Tensor(data(2, 3))
    expected = net(x).asnumpy()
    found = copy.deepcopy(net)
    assert np.array_equal(found(x).asnumpy(), expected)
    found.weight.set_data(ms.ops.zeros((3, 3)))
    assert not np.array_equal(found(x).asnumpy(), expected)
    del found
    gc.collect()
    assert np.array_equal(net(x).asnumpy(), expected)


def test_a_fused_cell_is_copied_with_what_it_has() -> None:
    net, x = bridge.fuse(tnn.Linear(3, 3)), ms.Tensor(data(2, 3))
    net.weight.requires_grad = False
    net.mark = 5
    net.register_forward_hook(_nothing_of)
    found = copy.deepcopy(net)
    assert found.mark == 5 and [one.name for one in found.trainable_params()] == ["bias"]
    assert not found(x).asnumpy().any() and found.weight is found.block.weight is not net.weight


def test_a_fused_function_is_its_own_copy() -> None:
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))
    step = bridge.value_and_grad(net, None, net.trainable_params())
    holder = copy.deepcopy({"net": net, "step": step, "fused": bridge.fuse(lambda x: net(x))})
    assert holder["step"] is step and same(holder["step"](x), in_torch(mlp().to(device()), x))
    assert holder["net"] is not net


def test_what_is_made_of_a_method_is_not_copied_with_its_object() -> None:
    class Trainer(tnn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = tnn.Linear(4, 3)
            self.step = bridge.value_and_grad(self.loss_of, None, self.net.trainable_params())

        def loss_of(self, x):
            return aten.sum(self.net(x))

    with pytest.raises(TypeError, match=r"loss_of: what .* gives for a method cannot be copied with its object"):
        copy.deepcopy(Trainer())


class HalfPorted(torch.nn.Module):
    """Calls what takes MindSpore's tensors."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        super().__init__()
        self.own = torch.nn.Linear(4, 4)
        self.inner = [lambda x: inner(x)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner[0](self.own(x)).sum()  # type: ignore[no-any-return]


def fused_function() -> Any:
    return bridge.fuse(lambda x: aten.mul(x, 2.0))


@pytest.mark.parametrize("make", [tnn.ReLU, lambda: tnn.Linear(4, 4), lambda: bridge.cell(mlp()), fused_function])
@pytest.mark.parametrize("is_graph", [False, True])
def test_a_module_of_pytorchs_does_not_call_cells(make: Callable[[], Any], is_graph: bool) -> None:
    """PyTorch's gradient would end there."""
    net, x = bridge.cell(HalfPorted(make())), ms.Tensor(data(3, 4))
    step = ms.value_and_grad(net, None, net.trainable_params())
    step = in_graph(ms.value_and_grad)(net, net.trainable_params()) if is_graph else step
    with pytest.raises(TypeError, match="takes MindSpore's tensors, and was given PyTorch's, whose gradient would end"):
        step(x)


def test_pytorchs_parameters_are_constants_outside_of_modules() -> None:
    class Adds(torch.nn.Module):
        def forward(self, x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
            return x + weights[0]

    weight = torch.nn.Parameter(torch.full((4,), 2.0, device=device()))
    assert (bridge.cell(Adds())(ms.ops.ones((2, 4)), [weight]).asnumpy() == 3).all()


def test_captures_on_two_threads_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture replaces functions of PyTorch's for all threads. MindSpore's own compiler fails on two at once."""
    graph = bridge.cell(mlp()).program.graph
    under_way: list[None] = []
    seen: list[int] = []

    def planned(*_: Any) -> None:
        under_way.append(None)
        time.sleep(0.05)
        seen.append(len(under_way))
        under_way.pop()

    monkeypatch.setattr(graph, "_planned", planned)
    arguments: Any = [], [], {}, ms.Tensor([0.0])  # which says that there is no mixed precision
    threads = [threading.Thread(target=graph.plan_in_graph, args=arguments) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1, 1]


@pytest.mark.parametrize("make", WAYS.values())
@pytest.mark.parametrize("value_and_grad", [ms.value_and_grad, bridge.value_and_grad])
def test_hooks_on_what_pytorch_adds_up_are_refused(make: Any, value_and_grad: Any) -> None:
    net, x = bridge.cell(mlp()), ms.Tensor(data(3, 4))
    net.module.get_parameter("3.bias").register_post_accumulate_grad_hook(lambda parameter: None)
    for step in (value_and_grad(net, None, net.trainable_params()), make(net, net.trainable_params())):
        with pytest.raises(RuntimeError, match="has post accumulate grad hooks, which do not run"):
            step(x)
    assert net(x).shape == (3, 4)
