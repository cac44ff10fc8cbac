"""Modules that somebody changes after MindSpore has compiled a graph with them."""

from __future__ import annotations

import array
import copy
import functools
import warnings
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn

import bridge
import of_users.settings
from bridge import aten, optim
from bridge.programs import attributes, plan, seen
from of_users import networks, settings
from shared import data, modes, on_device, torch_device


class Branches(torch.nn.Module):
    """Has all kinds of settings that its forward asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.activation: torch.nn.Module = torch.nn.ReLU()
        self.dropout = torch.nn.Dropout(0.0)
        self.scale = 1.0
        self.factors = [1.0, 2.0]
        self.config = SimpleNamespace(adds_one=False, shift=torch.zeros(4))
        self.bank = {"shifts": [torch.zeros(4)]}
        self.table: Any = torch.arange(4.0)
        self.shift: Any
        self.register_buffer("shift", torch.zeros(4), persistent=False)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        y = self.activation(self.linear(x)) * self.scale * self.factors[1] + self.table.to(x.device) + self.shift
        y = y + self.bank["shifts"][0].to(x.device) * 3 + self.config.shift.to(x.device)
        return self.dropout(y + 1 if self.config.adds_one else y)


class Around(nn.Cell):
    """A Cell with another one inside."""

    def __init__(self, inner: nn.Cell) -> None:
        super().__init__()
        self.inner = inner

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.inner(x)


def jitted(net: nn.Cell) -> Callable[[ms.Tensor], ms.Tensor]:
    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    return call  # type: ignore[no-any-return]


def in_graph_mode(make: Callable[[nn.Cell], nn.Cell]) -> Callable[[nn.Cell], Callable[[ms.Tensor], ms.Tensor]]:
    def called(net: nn.Cell) -> Callable[[ms.Tensor], ms.Tensor]:
        cell = make(net)

        def call(x: ms.Tensor) -> ms.Tensor:
            ms.set_context(mode=ms.GRAPH_MODE)
            try:
                return cell(x)
            finally:
                ms.set_context(mode=ms.PYNATIVE_MODE)

        return call

    return called


def fused(net: nn.Cell) -> Callable[[ms.Tensor], ms.Tensor]:
    block = bridge.fuse(Around(net))

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return block(x)

    return call  # type: ignore[no-any-return]


WAYS = [jitted, in_graph_mode(lambda net: net), in_graph_mode(Around), fused]
CHANGES: dict[str, Callable[[Branches], Any]] = {
    "a number": lambda module: setattr(module, "scale", 3.0),
    "one of a list": lambda module: module.factors.__setitem__(1, -1.0),
    "one of an object": lambda module: setattr(module.config, "adds_one", True),
    "a tensor": lambda module: setattr(module, "table", torch.ones(4)),
    "what is in a tensor": lambda module: module.table.mul_(2),
    "what is in a tensor of a list": lambda module: module.bank["shifts"][0].copy_(torch.arange(4.0)),
    "what is in a tensor of an object": lambda module: module.config.shift.add_(1),
    "what is in a buffer": lambda module: module.shift.add_(1),
    "one of a layer": lambda module: setattr(module.dropout, "p", 1.0),
    "a part without parameters": lambda module: setattr(module, "activation", torch.nn.Tanh()),
    "a function": lambda module: setattr(module.activation, "forward", torch.neg),
    "the mode of a part": lambda module: module.dropout.eval(),
    "a class": lambda module: setattr(module.activation, "__class__", torch.nn.Sigmoid),
    "a parameter that becomes None": lambda module: setattr(module.linear, "bias", None),
}


@pytest.mark.parametrize("way", WAYS, ids=["jit", "Cell", "Cell in another", "fuse"])
def test_a_graph_follows_changed_settings(way: Callable[..., Any]) -> None:
    module = Branches()
    expected, x = copy.deepcopy(module).to(torch_device()), data(3, 4)
    call = way(bridge.cell(module))
    changes: dict[str, Callable[[Branches], Any]] = {"nothing": lambda _: None, **CHANGES}
    for name, change in changes.items():
        for both in (module, expected):
            change(both)
        found = call(ms.Tensor(x))
        assert torch.equal(torch.from_numpy(found.asnumpy()), expected(on_device(x)).cpu()), name


def test_a_graph_follows_a_tensor_after_a_call_in_pynative_mode() -> None:
    module, x = Branches(), data(3, 4)
    expected, net = copy.deepcopy(module).to(torch_device()), bridge.cell(module)
    call = jitted(net)
    for _ in range(3):
        for one in (call, net):  # the second counts its calls, which changes an attribute
            found = one(ms.Tensor(x))
            assert torch.equal(torch.from_numpy(found.asnumpy()), expected(on_device(x)).cpu())
        for both in (module, expected):
            both.table.mul_(2)
            both.bank["shifts"][0].add_(1)


class Doubles(nn.Cell):
    """Doubles what another Cell gives, while it trains."""

    def __init__(self, inner: nn.Cell) -> None:
        super().__init__()
        self.inner = inner

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.inner(x) * 2 if self.training else self.inner(x)


@pytest.mark.parametrize("wrap", [lambda cell: cell, bridge.fuse], ids=["MindSpore's", "fused"])
@pytest.mark.parametrize("inner", [torch.nn.Identity, torch.nn.ReLU])
def test_a_graph_follows_the_mode_of_each_cell(wrap: Callable[..., Any], inner: Callable[[], Any]) -> None:
    cell = Doubles(bridge.cell(inner()))
    call = jitted(wrap(cell))
    for outer, other in ((True, True), (False, False), (True, False), (False, True), (True, True)):
        cell.set_train(outer)
        cell.inner.set_train(other)
        assert call(ms.Tensor([3.0])).asnumpy().tolist() == [6.0 if outer else 3.0]


def test_a_buffer_that_is_none_for_a_time() -> None:
    weight, x, y = torch.tensor([1.0, 20.0, 3.0], device=torch_device()), data(8, 3), np.arange(8) % 3
    loss = torch.nn.CrossEntropyLoss(weight)
    net, reference = bridge.cell(loss), copy.deepcopy(loss).to(torch_device())

    @ms.jit
    def call(x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x, y)

    for value in (weight, None, weight):
        for both in (loss, reference):
            both.weight = value
        expected = reference(on_device(x), on_device(y)).cpu()
        assert torch.equal(torch.from_numpy(call(ms.Tensor(x), ms.Tensor(y)).asnumpy()), expected)


class Registers(torch.nn.Module):
    """Has a parameter and buffers that may be there."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((4,), 2.0))
        self.part = torch.nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.scale if hasattr(self, "scale") else x
        return self.part(x) + (self.shift if hasattr(self, "shift") else 1.0)


def normalizing() -> torch.nn.Module:
    return torch.nn.BatchNorm1d(4, affine=False).eval().to(torch_device())


REGISTERED: dict[str, Callable[[Any], Any]] = {
    "a new buffer": lambda module: module.register_buffer("shift", torch.arange(4.0, device=torch_device())),
    "what is in it": lambda module: module.shift.mul_(2),
    "another in its place": lambda module: setattr(module, "shift", torch.ones(4, device=torch_device())),
    "none any more": lambda module: delattr(module, "shift"),
    "a part with buffers": lambda module: setattr(module, "part", normalizing()),
    "what is in those": lambda module: module.part.running_mean.add_(1),
    "no parameter": lambda module: delattr(module, "scale"),
}


@pytest.mark.parametrize("way", WAYS, ids=["jit", "Cell", "Cell in another", "fuse"])
def test_a_graph_follows_what_is_registered_and_deleted(way: Callable[..., Any]) -> None:
    module, x = Registers(), data(3, 4)
    call = way(bridge.cell(module))
    expected = copy.deepcopy(module).to(torch_device())
    call(ms.Tensor(x))
    for name, change in REGISTERED.items():
        for both in (module, expected):
            change(both)
        found = call(ms.Tensor(x))
        assert torch.equal(torch.from_numpy(found.asnumpy()), expected(on_device(x)).cpu()), name


class Config:
    factor = 1.0


class OwnConfig(Config):
    pass


class HasConfig(torch.nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.config.factor


@pytest.mark.parametrize("make", [Config, OwnConfig, lambda: Config, lambda: OwnConfig])
@pytest.mark.parametrize("changed", [Config, OwnConfig])
def test_a_graph_follows_classes_of_objects(
    changed: Any, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = HasConfig(make()), data(3, 4)
    call = jitted(bridge.cell(module))
    for factor in (1.0, 2.0, 3.0):
        monkeypatch.setattr(changed, "factor", factor)
        assert torch.equal(torch.from_numpy(call(ms.Tensor(x)).asnumpy()), module(torch.tensor(x)))


class KeepsAverages(torch.nn.Module):
    """Has an average of its weight and a view of it that it does not use, and one that it uses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer: Any = torch.nn.Linear(4, 4)
        self.shadow = {"weight": self.layer.weight.detach().clone()}
        self.aliases = [self.layer.weight.detach()]
        self.scales = [torch.ones(4, device=torch_device())]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scales[0]

    def average(self) -> None:
        self.shadow["weight"].lerp_(self.layer.weight.detach().cpu(), 0.5)


@pytest.mark.usefixtures("own_programs")
def test_tensors_that_a_module_does_not_use_cost_no_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = KeepsAverages(), data(3, 4)
    call = jitted(bridge.cell(module))
    made = Mock(side_effect=plan.make)
    monkeypatch.setattr(plan, "make", made)
    for step in range(4):
        expected = module(on_device(x))
        assert torch.equal(torch.from_numpy(call(ms.Tensor(x)).asnumpy()), expected.detach().cpu())
        module.average()
        with torch.no_grad():
            module.layer.weight.mul_(0.5)
        if step == 2:
            captures = made.call_count
            module.scales[0].mul_(2)
    assert (captures, made.call_count) == (1, 2)


class AsksTensors(torch.nn.Module):
    """Asks a tensor for something else than its data."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = {"all": torch.ones(3, 2)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        asked = self.sizes["all"]
        return x * (asked.numel() + 10 * asked.requires_grad + 100 * asked.is_contiguous())


def test_a_graph_follows_what_a_tensor_is() -> None:
    module, x = AsksTensors(), data(3, 4)
    call, tensor = jitted(bridge.cell(module)), module.sizes["all"]
    changes: list[Callable[[], Any]] = [
        lambda: setattr(tensor, "data", torch.ones(4, 2)),
        lambda: tensor.requires_grad_(),
        lambda: setattr(tensor, "data", torch.ones(2, 4).T),
        lambda: tensor.requires_grad_(False),
    ]
    for change in changes:
        assert torch.equal(torch.from_numpy(call(ms.Tensor(x)).asnumpy()), module(torch.tensor(x)))
        change()
    assert torch.equal(torch.from_numpy(call(ms.Tensor(x)).asnumpy()), module(torch.tensor(x)))


class ByName(torch.nn.Module):
    name = "scaled"

    def forward(self, x: torch.Tensor) -> Any:
        return getattr(networks, self.name)(x)


def test_a_graph_follows_what_a_function_finds_that_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    call, x = jitted(bridge.cell(ByName())), data(3, 4)
    for k in (2.0, 3.0, 2.0):
        monkeypatch.setattr(settings, "K", k)
        assert (call(ms.Tensor(x)).asnumpy() == x * np.float32(k)).all()


class Scale:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Shift(Scale):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + 5


class Containers(torch.nn.Module):
    """Has numbers in all kinds of containers."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = deque([1.0, 2.0])
        self.table = {"first": 3.0, "second": 4.0}
        self.ordered = OrderedDict(first=5.0, second=6.0)
        self.array = array.array("d", [7.0, 8.0])
        self.codes = bytearray(b"ab")
        self.many = [float(i) for i in range(20_000)]
        self.objects = [Scale()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = next(iter(self.table.values())), next(iter(self.ordered.values()))
        y = x * self.queue[0] + self.queue[1] + first * 10 + second * 20
        return self.objects[0](y + self.array[0] * 3 + self.codes[0] * 5 + self.many[12_345])


class Doubled(Containers):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda module: module.queue.append(module.queue.popleft()),
        lambda module: module.table.update(first=module.table.pop("first")),
        lambda module: module.ordered.move_to_end("first"),
        lambda module: module.array.reverse(),
        lambda module: module.codes.reverse(),
        lambda module: module.many.__setitem__(12_345, 1.0),
        lambda module: setattr(module.objects[0], "__class__", Shift),
        lambda module: setattr(module, "__class__", Doubled),
    ],
    ids=["deque", "dict", "OrderedDict", "array", "bytearray", "a long list", "a class", "the module's class"],
)
def test_a_graph_follows_containers_of_all_kinds_and_classes(change: Callable[[Any], Any]) -> None:
    module, x = Containers(), data(3, 4)
    call = jitted(bridge.cell(module))
    for changes in (lambda _: None, change, lambda _: None):
        changes(module)
        found = call(ms.Tensor(x))
        assert torch.equal(torch.from_numpy(found.asnumpy()), module(on_device(x)).cpu())


def test_a_graph_is_compiled_once_for_each_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Branches()
    net = bridge.cell(module)
    call, x = jitted(net), ms.Tensor(data(3, 4))
    planned = []
    own = net.program.graph._planned

    def counted(*args: Any) -> Any:
        planned.append(args)
        return own(*args)

    monkeypatch.setattr(net.program.graph, "_planned", counted)
    for scale, count in ((1.0, 1), (2.0, 2), (1.0, 2), (2.0, 2)):
        module.scale = scale
        call(x)
        net(x)  # counts its calls, which changes an attribute, in PyNative mode
        call(x)
        assert len(planned) == count
    module.train(False)
    call(x)
    module.scale = 1.0
    call(x)
    module.train()
    call(x)
    assert len(planned) == 4


def test_a_change_before_another_graph_is_compiled_is_one_for_all() -> None:
    module, x = Branches(), data(3, 4)
    net = bridge.cell(module)
    expected, first = copy.deepcopy(module).to(torch_device()), jitted(net)
    for scale in (1.0, 3.0, 1.0):
        module.scale = expected.scale = scale
        for call in (jitted(net), first):
            found = call(ms.Tensor(x))
            assert torch.equal(torch.from_numpy(found.asnumpy()), expected(on_device(x)).cpu()), scale


def test_hooks_that_are_set_later_are_refused_and_gone_when_they_are_removed() -> None:
    module, x = Branches(), ms.Tensor(data(3, 4))
    call = jitted(bridge.cell(module))
    before = call(x)
    weight = module.linear.weight
    for words, register in (
        ("Branches.linear has forward hooks", lambda: module.linear.register_forward_hook(lambda *_: None)),
        ("Branches.linear has backward hooks", lambda: module.linear.register_full_backward_hook(lambda *_: None)),
        ("Branches.linear.weight has backward hooks", lambda: weight.register_hook(lambda _: None)),
        ("linear.weight has post accumulate grad hooks", lambda: weight.register_post_accumulate_grad_hook(print)),
    ):
        handle = register()
        for _ in range(2):
            with pytest.raises(RuntimeError, match=words):
                call(x)
        handle.remove()
        assert (call(x).asnumpy() == before.asnumpy()).all()


def test_a_setting_that_changes_all_the_time_is_warned_of() -> None:
    module, x = Branches(), ms.Tensor(data(3, 4))
    call = jitted(bridge.cell(module))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(8):
            module.scale = 1.0 + step
            call(x)
    assert ["Branches.scale was changed again: 8 graphs" in str(one.message) for one in caught].count(True) == 1


def test_a_training_step_follows_a_schedule_of_dropout() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 2))
    expected = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    own, reference = bridge.optim.SGD(net.trainable_params(), 0.1), torch.optim.SGD(expected.parameters(), 0.1)
    differentiate = ms.value_and_grad(net, None, own.parameters)
    x = data(6, 4)

    @ms.jit
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        _, gradients = differentiate(x)
        return own(gradients)

    for epoch, p in enumerate((0.1, 0.5, 0.1, 0.3)):
        module[1].p = expected[1].p = p  # type: ignore[assignment]
        torch.manual_seed(epoch)
        step(ms.Tensor(x))
        ms.runtime.synchronize()
        torch.manual_seed(epoch)
        reference.zero_grad()
        value = expected(on_device(x))
        value.backward(torch.ones_like(value))
        reference.step()
        for name, tensor in expected.state_dict().items():
            assert torch.equal(module.state_dict()[name], tensor), (epoch, name)


@pytest.mark.parametrize("attempt", range(4))  # MindSpore followed the optimizer's former tensors in some
@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad])
def test_parameters_put_in_the_place_of_those_of_an_optimizer(differentiate: Callable[..., Any], attempt: int) -> None:
    module = torch.nn.Linear(4, 3)
    net = bridge.cell(module)
    optimizer = optim.SGD(net.trainable_params(), lr=0.5)

    def loss(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.sum(net(x))

    loss_and_gradients = differentiate(loss, None, optimizer.parameters)

    @ms.jit
    def step(x):  # type: ignore[no-untyped-def]
        found, gradients = loss_and_gradients(x)
        optimizer(gradients)
        return found

    x = np.ones((2, 4), np.float32)
    step(ms.Tensor(x))
    step(ms.Tensor(x))
    reference = torch.nn.Linear(4, 3).to(torch_device())
    module.load_state_dict({name: value.clone() for name, value in reference.state_dict().items()}, assign=True)
    torchs = torch.optim.SGD(reference.parameters(), lr=0.5)
    for _ in range(3):
        found = step(ms.Tensor(x))
        torchs.zero_grad()
        expected = reference(on_device(x)).sum()
        expected.backward()
        torchs.step()
        assert found.asnumpy().tobytes() == expected.detach().cpu().numpy().tobytes()
        for name, parameter in reference.named_parameters():
            assert torch.equal(module.get_parameter(name), parameter), name


@pytest.mark.parametrize("how", ["assign", "data", "parameter"])
@pytest.mark.parametrize("kind", [nn.SGD, nn.Adam])
def test_mindspores_optimizers_train_other_data(kind: Callable[..., Any], how: str) -> None:
    """In PyNative mode MindSpore compiles their steps."""
    module = torch.nn.Linear(2, 2, bias=False)
    net = bridge.cell(module)
    optimizer = kind(net.trainable_params(), 0.25)

    def loss(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.sum(net(x))

    gradients = ms.grad(loss, None, optimizer.parameters)
    x = ms.Tensor(np.ones((1, 2), np.float32))
    for _ in range(2):
        optimizer(gradients(x))
    other = torch.full((2, 2), 8.0, device=torch_device())
    if how == "assign":
        module.load_state_dict({"weight": other}, assign=True)
    elif how == "data":
        module.weight.data = other
    else:
        module.weight = torch.nn.Parameter(other)
    before = 8.0
    for _ in range(3):
        optimizer(gradients(x))
        ms.runtime.synchronize()
        now = module.weight[0, 0].item()
        assert now < before
        np.testing.assert_array_equal(net.trainable_params()[0].asnumpy(), module.weight.detach().cpu().numpy())
        before = now


def test_parameters_of_another_kind_are_an_error_until_they_are_back() -> None:
    module, x = Branches(), ms.Tensor(data(3, 4))
    call = jitted(bridge.cell(module))
    call(x)
    linear = module.linear
    for words, change, back in (
        ("has another shape or dtype now", module.half, module.float),
        (
            "has this parameter since",
            lambda: setattr(module, "linear", torch.nn.Linear(4, 4)),
            lambda: setattr(module, "linear", linear),
        ),
    ):
        change()
        for _ in range(2):
            with pytest.raises(ValueError, match=words):
                call(x)
        back()
        assert call(x).shape == (3, 4)


@modes
def test_parameters_that_exchange_their_places_are_an_error_until_they_are_back(wrap: Callable[..., Any]) -> None:
    module, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)), ms.Tensor(data(3, 4))
    net = bridge.cell(module)

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    call = wrap(call)
    before = call(x).asnumpy()

    def exchange() -> None:
        module[0].weight, module[1].weight = module[1].weight, module[0].weight

    exchange()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"0.weight: PyTorch's module has 1.weight in this place"):
            call(x)
    exchange()
    assert (call(x).asnumpy() == before).all()


@modes
def test_buffers_that_exchange_their_places(wrap: Callable[..., Any]) -> None:
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)).eval()
    for layer, mean in zip(module, (torch.arange(4.0), torch.ones(4)), strict=True):
        layer.running_mean = mean
    expected, x = copy.deepcopy(module).to(torch_device()), data(3, 4)
    net = bridge.cell(module)

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    call = wrap(call)
    for _ in range(3):
        found = call(ms.Tensor(x))
        assert torch.equal(torch.from_numpy(found.asnumpy()), expected(on_device(x)).cpu())
        for both in (module, expected):
            first, second = both[0], both[1]
            first.running_mean, second.running_mean = second.running_mean, first.running_mean


class SetsModes(torch.nn.Module):
    """Has a part in evaluation mode, whatever its own is: before the part's call, around it or after it."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
        self.when = when

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mode = self.body.training
        if self.when != "after":
            self.body.eval()
        y: torch.Tensor = self.body(x)
        self.body.train(mode and self.when == "around")
        return y


@pytest.mark.parametrize("when", ["before", "around"])
def test_a_call_may_set_modes_before_it_asks_for_them(when: str) -> None:
    module = SetsModes(when)
    own = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    net.set_train()
    call = jitted(net)
    for _ in range(2):
        x = data(3, 4)
        assert (call(ms.Tensor(x)).asnumpy() == own(on_device(x)).detach().cpu().numpy()).all()
        assert module.body.training and module.body[1].num_batches_tracked == 0


def test_a_call_must_not_leave_a_mode_to_the_next_one() -> None:
    net = bridge.cell(SetsModes("after"))
    net.set_train()
    with pytest.raises(RuntimeError, match=r"SetsModes\.body\.training is another one after a call"):
        jitted(net)(ms.Tensor(data(3, 4)))


SCALE = 1.0
CONFIG = {"shift": 0.0, "factors": [1.0, 2.0]}
TEACHER = torch.nn.Linear(4, 4)


class Temperature:
    value = 1.0


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value


def raised(x: torch.Tensor, by: float) -> torch.Tensor:
    return x + by


def helped(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE / Temperature.value + CONFIG["shift"] * CONFIG["factors"][0]  # type: ignore[index,operator,no-any-return]


class Elsewhere(torch.nn.Module):
    """Takes values from everywhere but its parts and attributes, or hides them in these."""

    kind_factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.hidden = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.0))]
        self.rise = functools.partial(raised, by=1.0)
        self.array = np.ones(4, np.float32)
        self.slotted = Slotted(1.0)
        self.chosen = {1, 2}
        around = torch.ones(4)
        self.closure = lambda x: x * around.to(x.device)
        self.hidden[0].to(torch_device())
        TEACHER.to(torch_device())
        self.around = around

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.closure(helped(self.linear(x))) * self.kind_factor * self.slotted.value * len(self.chosen)
        with torch.no_grad():
            target = self.hidden[0](x) + TEACHER(x)
        return self.rise(y - target) * torch.from_numpy(self.array.copy()).to(x.device)


def change_teacher(module: Any) -> None:
    with torch.no_grad():
        module.hidden[0][0].weight.mul_(0.5)


def change_data(module: Any) -> None:
    module.hidden[0][0].weight.data = module.hidden[0][0].weight.data * 0.5


def change_data_twice(module: Any) -> None:
    """The second time PyTorch may give it the memory that it had before."""
    change_data(module)
    change_data(module)


def change_array(module: Any) -> None:
    module.array[1] += 1


def change_around(module: Any) -> None:
    module.around.mul_(2)


def replace_partial(module: Any) -> None:
    module.rise = functools.partial(raised, by=module.rise.keywords["by"] + 1)


HIDDEN: list[Callable[[Any], Any]] = [
    change_teacher, change_data, change_data_twice, change_array, change_around, replace_partial,
    lambda module: setattr(module.slotted, "value", module.slotted.value + 1),
    lambda module: module.chosen.add(len(module.chosen) + 1),
    lambda module: setattr(type(module), "kind_factor", type(module).kind_factor + 1),
    lambda module: setattr(Temperature, "value", Temperature.value + 1),
    lambda module: CONFIG.update(shift=CONFIG["shift"] + 1.0),  # type: ignore[operator]
    lambda module: CONFIG["factors"].insert(0, CONFIG["factors"][0] + 1),  # type: ignore[attr-defined,index]
    lambda module: globals().update(SCALE=SCALE + 1),
    lambda module: torch.nn.init.normal_(TEACHER.weight),
]  # fmt: skip


@pytest.mark.parametrize("change", HIDDEN, ids=lambda change: change.__name__)
def test_a_graph_follows_what_its_code_finds_elsewhere(change: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    module = Elsewhere()
    call = jitted(bridge.cell(module))
    own = Elsewhere()
    for name in ("hidden", "rise", "array", "slotted", "chosen", "closure", "around"):
        setattr(own, name, getattr(module, name))
    own.load_state_dict(module.state_dict())
    own.to(torch_device())
    x = data(3, 4)
    found = []
    for _ in range(3):
        found.append(call(ms.Tensor(x)).asnumpy())
        np.testing.assert_array_equal(found[-1], own(on_device(x)).detach().cpu().numpy())
        change(module)
        for name in ("rise", "slotted"):
            setattr(own, name, getattr(module, name))
    assert not np.array_equal(found[0], found[1]) and not np.array_equal(found[1], found[2])


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def halved(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5


shaped = doubled


class CallsByName(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = torch.nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(torch.nn.functional.relu(shaped(x))) + self.shifted(x)

    def shifted(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


REPLACED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "own": lambda patch: patch.setitem(globals(), "shaped", halved),
    "PyTorch's": lambda patch: patch.setattr(torch.nn.functional, "relu", torch.neg),
    "PyTorch's by own": lambda patch: patch.setattr(torch.nn.functional, "relu", halved),
    "method": lambda patch: patch.setattr(CallsByName, "shifted", lambda self, x: halved(x)),
    "method of a layer": lambda patch: patch.setattr(torch.nn.GELU, "forward", torch.nn.Tanh.forward),
    "method of a layer by own": lambda patch: patch.setattr(torch.nn.GELU, "forward", lambda self, x: halved(x)),
}


@pytest.mark.parametrize("replace", REPLACED.values(), ids=REPLACED)
def test_a_graph_follows_functions_in_the_place_of_others(replace: Callable[[pytest.MonkeyPatch], None]) -> None:
    module = CallsByName()
    call, x = jitted(bridge.cell(module)), data(3, 4)

    def check() -> np.ndarray:
        found = call(ms.Tensor(x)).asnumpy()
        np.testing.assert_array_equal(found, module(on_device(x)).cpu().numpy())
        return found  # type: ignore[no-any-return]

    before = check()
    with pytest.MonkeyPatch.context() as patch:
        replace(patch)
        assert not np.array_equal(check(), before)
    assert np.array_equal(check(), before)


@pytest.mark.parametrize("by", ["script", "trace"])
def test_a_graph_takes_modules_of_torchscript(by: str) -> None:
    own = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).to(torch_device())
    x = data(3, 4)
    module = torch.jit.script(own) if by == "script" else torch.jit.trace(own, on_device(x))
    call = jitted(bridge.cell(module))
    for _ in range(2):
        np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), own(on_device(x)).detach().cpu().numpy())


def counting(x: torch.Tensor, met: list[int] = []) -> torch.Tensor:  # noqa: B006  # it is what is tested
    met.append(1)
    return x * len(met)


def called(x: torch.Tensor) -> torch.Tensor:
    called.times += 1  # type: ignore[attr-defined]
    return x * called.times  # type: ignore[attr-defined,no-any-return]


called.times = 0  # type: ignore[attr-defined]


def around_a_number() -> Callable[[torch.Tensor], torch.Tensor]:
    number = 0

    def step(x: torch.Tensor) -> torch.Tensor:
        nonlocal number
        number += 1
        return x * number

    return step


STEP = around_a_number()


class Counts(torch.nn.Module):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.where == "step.number":
            return STEP(x)
        return called(x) if self.where == "called.times" else counting(x)


@pytest.mark.parametrize("where", ["counting.defaults", "called.times", "step.number"])
def test_what_a_function_keeps_for_its_next_call_is_refused(where: str) -> None:
    with pytest.raises(RuntimeError, match=rf"{where} changes in a call and is used by the next one"):
        jitted(bridge.cell(Counts(where)))(ms.Tensor(data(3, 4)))


class Rotary(torch.nn.Module):
    """Keeps its table in a buffer that is not persistent, with a length of its own, as rotary_embedding_torch does."""

    def __init__(self, accumulates: bool, reads: bool) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.rates = torch.nn.Parameter(torch.rand(4), requires_grad=False)
        self.table: torch.Tensor
        self.register_buffer("table", torch.zeros(16, 4), persistent=False)
        self.length = 0
        self.accumulates, self.reads = accumulates, reads

    def angles(self, steps: int) -> torch.Tensor:
        if steps <= self.length:
            return self.table[:steps].detach()
        found = torch.arange(steps, device=self.rates.device)[:, None] * self.rates
        before = self.table.sum() if self.reads else 0.0
        if self.accumulates:
            self.table[:steps] += found.detach()
        else:
            self.table[:steps] = found.detach()
        self.length = steps
        return found + before

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        return y * self.angles(len(x)).cos() + y.sin() * self.angles(len(x))


class Part:
    """One of many that lead to each other."""

    def __init__(self, around: Part | None) -> None:
        self.around, self.parts, self.weight = around, list[Part](), 2.0
        if around is not None:
            around.parts.append(self)


PARTS = [Part(None)]
PARTS += [Part(PARTS[0]) for _ in range(500)]


def test_many_objects_that_lead_to_each_other_are_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scales(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * PARTS[-1].weight

    looks = 0
    own = seen.children_of

    def counted(one: Any) -> Any:
        nonlocal looks
        looks += 1
        return own(one)

    for module in (attributes, seen):
        monkeypatch.setattr(module, "children_of", counted)
    net, x = bridge.cell(Scales()), ms.Tensor(data(2, 3))

    @ms.jit
    def call(x):
        return net(x)

    for weight in (2.0, 3.0):
        PARTS[-1].weight = weight
        assert np.array_equal(call(x).asnumpy(), data(2, 3) * np.float32(weight))
    assert looks < 100 * len(PARTS)


def test_a_table_that_each_call_writes_again_is_no_state() -> None:
    torch.manual_seed(0)
    module = Rotary(accumulates=False, reads=False)
    own = copy.deepcopy(module).to(torch_device())
    call = jitted(bridge.cell(module))
    for steps in (5, 3, 7, 7):
        x = data(steps, 4)
        np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), own(on_device(x)).detach().cpu().numpy())
    assert module.length == 0 and not module.table.any()


@pytest.mark.parametrize("how", [{"accumulates": True, "reads": False}, {"accumulates": False, "reads": True}])
def test_a_table_that_is_another_one_after_a_call_is_state(how: dict[str, bool]) -> None:
    with pytest.raises(RuntimeError, match="neither a parameter nor a persistent buffer"):
        jitted(bridge.cell(Rotary(**how)))(ms.Tensor(data(3, 4)))


class Generator(torch.nn.Module):
    """Has its critic as a part, or in a list."""

    def __init__(self, critic: torch.nn.Module, is_part: bool) -> None:
        super().__init__()
        self.scale, self.critics = torch.nn.Parameter(torch.ones(1)), [critic]
        if is_part:
            self.critic = critic

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.critics[0](self.scale * z).sum()


@pytest.mark.parametrize("is_part", [True, False])
@pytest.mark.parametrize("value_and_grad", [ms.value_and_grad, bridge.value_and_grad])
def test_a_module_that_an_optimizer_of_the_graph_changes_is_a_part(value_and_grad: Any, is_part: bool) -> None:
    critic = torch.nn.Linear(1, 1, bias=False)
    critic.weight.data.fill_(1.0)
    net = bridge.cell(critic)
    optimizer = bridge.optim.SGD(net.trainable_params(), 0.5)
    generator = bridge.cell(Generator(critic, is_part))
    of_critic = value_and_grad(net, None, optimizer.parameters)
    of_generator = value_and_grad(generator, None, [generator.trainable_params()[0]])

    @ms.jit
    def step(z):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        _, gradients = of_critic(z)
        optimizer(gradients)
        return of_generator(z)[0]

    z = ms.Tensor(np.ones((1, 1), np.float32))
    if is_part:
        assert [step(z).item() for _ in range(3)] == [0.5, 0.0, -0.5]
        return
    with pytest.raises(RuntimeError, match=r"changes Generator's Linear\.weight before.*Make its module"):
        step(z)


class Calls(torch.nn.Module):
    """Calls a function that it was given."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.function(x)


class Schedule:
    """A factor that the training sets."""

    def __init__(self) -> None:
        self.factor, self.table = 1.0, {0: 1.0}

    def of(self, _: torch.Tensor) -> float:
        return self.factor

    def count(self, _: torch.Tensor) -> float:
        self.factor += 1
        return self.factor


TAUGHT = {"weight": torch.full((4, 4), 2.0), "bias": torch.ones(4)}
BOUND: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "a method": (lambda schedule, _: schedule.of, lambda schedule, _: setattr(schedule, "factor", 3.0)),
    "a partial of it": (
        lambda schedule, _: functools.partial(schedule.of),
        lambda schedule, _: setattr(schedule, "factor", 3.0),
    ),
    "a dictionary's": (
        lambda schedule, _: functools.partial(lambda get, x: get(0), schedule.table.get),
        lambda schedule, _: schedule.table.update({0: 3.0}),
    ),
    "a module's": (lambda _, teacher: teacher.forward, lambda _, teacher: teacher.load_state_dict(TAUGHT)),
    "a module's, which has a mode": (lambda _, teacher: teacher.forward, lambda _, teacher: teacher.train()),
}


class Teacher(torch.nn.Linear):
    """Has a mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -super().forward(x) if self.training else super().forward(x)


@pytest.mark.parametrize("kind", BOUND)
def test_a_graph_follows_the_object_of_a_method(kind: str) -> None:
    schedule, teacher = Schedule(), Teacher(4, 4).eval().requires_grad_(False).to(torch_device())
    function, change = BOUND[kind]
    module = Calls(function(schedule, teacher)).to(torch_device())
    call, x = jitted(bridge.cell(module)), data(2, 4)

    def check() -> None:
        np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), module(on_device(x)).detach().cpu().numpy())

    check()
    change(schedule, teacher)
    check()


def test_an_object_of_a_method_that_counts_is_refused() -> None:
    schedule = Schedule()
    with pytest.raises(RuntimeError, match=r"Calls\.function"):
        jitted(bridge.cell(Calls(schedule.count)))(ms.Tensor(data(2, 4)))
    assert schedule.factor == 1.0


def by_table(x: torch.Tensor) -> torch.Tensor:
    return x * TABLED["factor"]


TABLED = {"factor": 1.0}
ACTIVATIONS = {"scaled": by_table}


class Described:
    """Gives a module what its file has."""

    factor = 1.0

    def __get__(self, owner: Any, kind: Any) -> float:
        return self.factor


class Named(torch.nn.Module):
    """Finds numbers by names that lead through other things."""

    described = Described()

    def forward(self, x: torch.Tensor, by: float = 1.0) -> torch.Tensor:
        from of_users.settings import K

        return ACTIVATIONS["scaled"](x) * self.described * of_users.settings.D["k"] * K * by


def change_defaults() -> None:
    function: Any = Named.forward
    function.__defaults__ = (function.__defaults__[0] + 1,)


THROUGH: list[Callable[[], Any]] = [
    lambda: TABLED.update(factor=TABLED["factor"] + 1),
    lambda: setattr(Described, "factor", Described.factor + 1),
    lambda: settings.D.update(k=settings.D["k"] + 1),
    lambda: setattr(settings, "K", settings.K + 1),
    change_defaults,
]


def test_names_that_lead_through_other_things() -> None:
    call, x = jitted(bridge.cell(Named())), data(2, 3)
    before = TABLED.copy(), Described.factor, settings.D.copy(), settings.K
    try:
        for change in (*THROUGH, *THROUGH):
            np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), Named()(on_device(x)).cpu().numpy())
            change()
        np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), Named()(on_device(x)).cpu().numpy())
    finally:
        table, Described.factor, own, settings.K = before
        TABLED.update(table)
        settings.D.update(own)


class Owner:
    """Has what a module takes from it by ways that hold it weakly, and a table that others may only read."""

    def __init__(self) -> None:
        self.scale, self.table = 1.0, {"scale": 1.0}

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class HoldsWeakly(torch.nn.Module):
    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self.owner, self.scaled = weakref.ref(owner), weakref.WeakMethod(owner.scaled)
        self.owners = weakref.WeakValueDictionary({"first": owner})
        self.table = MappingProxyType(owner.table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        owner, scaled = self.owner(), self.scaled()
        assert owner is not None and scaled is not None
        return scaled(x) + owner.scale * self.owners["first"].scale + self.table["scale"]


def test_what_a_module_holds_weakly_is_followed() -> None:
    owner = Owner()
    module, x = HoldsWeakly(owner), data(2, 3)
    call = jitted(bridge.cell(module))
    for scale in (1.0, 1.0, 2.0, 2.0, 2.0, 3.0):
        owner.scale = owner.table["scale"] = scale
        np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), module(on_device(x)).cpu().numpy())
    for scale in (4.0, 5.0):
        owner.table["scale"] = scale
        np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), module(on_device(x)).cpu().numpy())


class Looks(torch.nn.Module):
    """Takes a number from a dictionary of its own."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key, self.numbers = key, {key: 1.0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.numbers[self.key]


@pytest.mark.parametrize("key", ["training", "", "other"])
def test_every_key_of_a_dictionary_counts(key: str) -> None:
    module = Looks(key)
    call = jitted(bridge.cell(module))
    for number in (1.0, 3.0):
        module.numbers[key] = number
        for _ in range(4):
            assert call(ms.Tensor(np.ones(1, np.float32))).asnumpy() == number


@pytest.mark.parametrize("jit", [False, True])
def test_a_new_cell_after_each_change_of_dtype(jit: bool) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4))
    module.to(torch_device())
    last: torch.Tensor = module.get_parameter("2.bias")
    former: list[Any] = []

    def training() -> tuple[Any, Any]:
        net = bridge.cell(module)
        optimizer = optim.SGD(net.trainable_params(), 0.1)

        def loss_of(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return aten.sum(net(x))

        differentiate = ms.value_and_grad(loss_of, None, optimizer.parameters)

        def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            _, gradients = differentiate(x)
            return optimizer(gradients)

        return ms.jit(step) if jit else step, net

    for _ in range(3):
        for dtype in (torch.float32, torch.float64):
            module.to(dtype)
            step, net = training()
            x = ms.Tensor(data(2, 4).astype(np.float64 if dtype is torch.float64 else np.float32))
            for _ in range(3):
                before = last.detach().clone()
                step(x)
                ms.runtime.synchronize()
                assert ((before - last.detach() - 0.2).abs() < 1e-5).all()
            former.append((step, net))
    for step, net in former[:-1]:
        for call in (step, net):
            with pytest.raises(ValueError, match="has another Parameter by now"):
                call(ms.Tensor(data(2, 4)))


@pytest.mark.parametrize("is_tied", [True, False])
def test_memory_that_is_not_contiguous_and_anothers(is_tied: bool) -> None:
    class Coder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            flat = torch.randn(3, 8)
            self.code = torch.nn.Parameter(flat if is_tied else flat[:, :4])
            self.decode = torch.nn.Parameter(flat.t() if is_tied else flat[:, 4:])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.code @ (self.decode if is_tied else self.decode.t())

    module, x = Coder(), data(2, 3)
    if is_tied:
        with pytest.raises(ValueError, match=r"decode and code have the same memory, and decode is not contiguous"):
            bridge.cell(module)
    else:
        assert (bridge.cell(module)(ms.Tensor(x)).asnumpy() == module(on_device(x)).detach().cpu().numpy()).all()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("jit", [False, True])
def test_buffers_of_float8(dtype: torch.dtype, jit: bool) -> None:
    class Quantized(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randn(4, 4).to(dtype))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.get_buffer("weight").to(x.dtype)

    module, x = Quantized().to(torch_device()), data(2, 4)
    expected, net = module(on_device(x)), bridge.cell(module)

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    assert ((ms.jit(call) if jit else call)(ms.Tensor(x)).asnumpy() == expected.cpu().numpy()).all()
