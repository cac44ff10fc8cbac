"""PyTorch's optimizers as MindSpore's: bridge.optim."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import mindspore as ms
import mindspore.dataset
import numpy as np
import pytest
import torch
from mindspore import nn

import bridge
from bridge import nn as tnn
from bridge import optim
from bridge import torch as T
from shared import class_at_sync, data, on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs")]

STEPS = 10


def torch_net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).to(torch_device())


def layers(module: torch.nn.Module) -> nn.Cell:
    net = tnn.Sequential(tnn.Linear(4, 8), tnn.Tanh(), tnn.Linear(8, 3))
    net.load_state_dict(module.state_dict())
    return net


def cells_of_mindspores(module: torch.nn.Module) -> nn.Cell:
    net = nn.SequentialCell(nn.Dense(4, 8), nn.Tanh(), nn.Dense(8, 3))
    tnn.load_state_dict(net, module.state_dict())
    return net


def halves(parameters: Any, **options: Any) -> list[dict[str, Any]]:
    parameters = list(parameters)
    return [{"params": parameters[:2]}, {"params": parameters[2:], **options}]


class Compared:
    """PyTorch's optimizer and the bridge's, which are given the same gradients."""

    def __init__(self, name: str, make: Any = layers, groups: Any = list, jit: bool = False, **options: Any) -> None:
        self.module = torch_net()
        self.net = make(self.module)
        self.torch = getattr(torch.optim, name)(groups(self.module.parameters()), **options)
        self.own = getattr(optim, name)(groups(self.net.trainable_params()), **options)
        self._apply = ms.jit(self.own) if jit else self.own
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        gradients = []
        parameters = [parameter for group in self.torch.param_groups for parameter in group["params"]]
        for i, parameter in enumerate(parameters):
            gradients.append(data(*parameter.shape, seed=100 * self.steps + i))
            parameter.grad = on_device(gradients[-1])
        self.torch.step()
        self._apply(ms.mutable(tuple(map(ms.Tensor, gradients))))

    def check(self) -> None:
        for own, parameter in zip(self.net.trainable_params(), self.module.parameters(), strict=True):
            assert np.array_equal(own.asnumpy(), parameter.detach().cpu().numpy()), own.name
        assert_same_state(self.own.state_dict(), self.torch.state_dict())

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
        self.check()


def assert_same_state(own: Any, expected: Any) -> None:
    assert own["param_groups"] == expected["param_groups"]
    assert own["state"].keys() == expected["state"].keys()
    for number, state in expected["state"].items():
        for name, value in state.items():
            found = own["state"][number][name]
            assert torch.equal(found.cpu(), value.cpu()) if isinstance(value, torch.Tensor) else found == value, name


def without(name: str) -> bool:
    return not hasattr(torch.optim, name)


NAMES = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adadelta", "Adamax", "ASGD", "Rprop",
         "Adafactor"]  # fmt: skip


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_ten_steps_are_pytorchs(name: str, jit: bool) -> None:
    Compared(name, jit=jit).run()


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "fused": ("AdamW", {"fused": True, "lr": 0.02}),
    "foreach": ("AdamW", {"foreach": True, "amsgrad": True}),
    "momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "a tensor for a rate": ("Adam", {"lr": torch.tensor(0.01)}),
    "maximize": ("RMSprop", {"momentum": 0.5, "centered": True, "maximize": True}),
}


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("row", OPTIONS)
def test_options_are_pytorchs(row: str, jit: bool) -> None:
    name, options = OPTIONS[row]
    Compared(name, jit=jit, **options).run()


@pytest.mark.skipif(without("Muon"), reason="this PyTorch has no Muon")
def test_muon() -> None:
    Compared("Muon", groups=lambda parameters: [p for p in parameters if p.ndim == 2], lr=0.01).run()


@pytest.mark.parametrize("jit", [False, True])
def test_groups_and_mindspores_own_parameters(jit: bool) -> None:
    def groups(parameters: Any) -> Any:
        return halves(parameters, lr=0.5, betas=(0.8, 0.9), weight_decay=0.3)

    Compared("AdamW", cells_of_mindspores, groups, jit).run()


@pytest.mark.parametrize("jit", [False, True])
def test_a_parameter_without_a_gradient_stays(jit: bool) -> None:
    module = torch.nn.Linear(3, 2)
    net, before = bridge.cell(module), copy.deepcopy(module.state_dict())
    optimizer = optim.AdamW(net.trainable_params(), lr=0.1, weight_decay=0.5)

    def step(gradient):
        return optimizer((None, gradient))

    for _ in range(4):
        (ms.jit(step) if jit else step)(ms.Tensor(data(2)))
    assert torch.equal(module.weight, before["weight"]) and not torch.equal(module.bias, before["bias"])
    assert list(optimizer.state_dict()["state"]) == [1]


def test_graphs_of_several_shapes_share_an_optimizer() -> None:
    pair = Compared("AdamW")

    def step(gradients, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        pair.own(gradients)
        return x

    compiled = ms.jit(step)
    sizes = iter([4, 3, 4, 3])
    pair._apply = lambda gradients: compiled(gradients, ms.Tensor(data(next(sizes), 2)))
    for _ in range(4):
        pair.step()
    pair.check()


@pytest.mark.parametrize("jit", [False, True])
def test_what_is_frozen_is_not_trained(jit: bool) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).to(torch_device())
    net = tnn.Sequential(tnn.Linear(3, 4), tnn.Linear(4, 2))
    net.load_state_dict(module.state_dict())
    net[0].weight.requires_grad = False
    module[0].weight.requires_grad = False
    own = optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.5)
    expected = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.5)
    gradients = [data(*parameter.shape) for parameter in own.parameters]  # MindSpore gives one for each

    def step(gradients):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        own(gradients)
        return gradients[0]

    take = ms.jit(step) if jit else step
    bias, of_pytorch = net[1].bias, net[1].module.bias
    for is_frozen, one in ((False, bias), (True, bias), (False, bias), (True, of_pytorch)):  # while it trains
        one.requires_grad = not is_frozen
        module[1].bias.requires_grad = not is_frozen
        take(tuple(map(ms.Tensor, gradients)))
        for parameter, gradient in zip(module.parameters(), gradients, strict=True):
            parameter.grad = on_device(gradient) if parameter.requires_grad else None
        expected.step()
    for name, value in module.state_dict().items():
        assert torch.equal(net.state_dict()[name].to(value.device), value), name


@pytest.mark.parametrize("value_and_grad", [ms.value_and_grad, bridge.value_and_grad])
@pytest.mark.parametrize("of_pytorch", [False, True])
def test_what_was_frozen_is_trained_in_a_graph_once_it_is_set_free(
    value_and_grad: Callable[..., Any], of_pytorch: bool
) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).to(torch_device())
    net = bridge.cell(copy.deepcopy(module))
    own, expected = optim.AdamW(net.trainable_params(), lr=0.1), torch.optim.AdamW(module.parameters(), lr=0.1)
    differentiate = value_and_grad(net, None, own.parameters)
    x = data(5, 3)

    @ms.jit
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        _, gradients = differentiate(x)
        return own(gradients)

    first: Any = next(net.module.parameters()) if of_pytorch else own.parameters[0]
    for is_trained in (False, True, False, True):
        first.requires_grad = is_trained
        module[0].weight.requires_grad_(is_trained)
        step(ms.Tensor(x))
        ms.runtime.synchronize()
        expected.zero_grad()
        value = module(on_device(x))
        value.backward(torch.ones_like(value))
        expected.step()
        for name, tensor in module.state_dict().items():
            assert torch.equal(net.module.state_dict()[name], tensor), (is_trained, name)


def test_what_was_frozen_for_a_while_is_trained_again_in_a_graph() -> None:
    net = bridge.cell(torch.nn.Linear(3, 4))
    own = optim.AdamW(net.trainable_params(), lr=0.1)
    differentiate = ms.value_and_grad(net, None, own.parameters)
    x = ms.Tensor(data(5, 3))

    @ms.jit
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        _, gradients = differentiate(x)
        return own(gradients)

    step(x)
    net.weight.requires_grad = False
    net(x)  # PyTorch follows, and the optimizer has not looked
    net.weight.requires_grad = True
    before = net.weight.asnumpy().copy()
    step(x)
    assert (net.weight.asnumpy() != before).any()


def test_chained_schedules() -> None:
    rates = []
    for lib, layers in ((optim, tnn), (torch.optim, torch.nn)):
        optimizer: Any = lib.SGD(layers.Linear(2, 2).parameters(), lr=1.0)
        schedules = lib.lr_scheduler
        chain = schedules.ChainedScheduler([schedules.ConstantLR(optimizer), schedules.ExponentialLR(optimizer, 0.9)])
        if lib is optim:
            optimizer((T.ones(2, 2), T.ones(2)))
        else:
            optimizer.step()
        chain.step()
        rates.append(chain.get_last_lr())
    assert rates[0] == rates[1]


def test_named_parameters() -> None:
    Compared("SGD", groups=lambda parameters: [(f"p{i}", p) for i, p in enumerate(parameters)], lr=0.1).run()


def test_state_dict_goes_both_ways() -> None:
    pair, other = Compared("AdamW"), Compared("AdamW")
    pair.step()
    other.step()
    pair.own.load_state_dict(copy.deepcopy(other.torch.state_dict()))
    pair.torch.load_state_dict(copy.deepcopy(other.own.state_dict()))
    pair.run()


@pytest.mark.parametrize("jit", [False, True])
def test_schedules_of_pytorchs(jit: bool) -> None:
    pair = Compared("AdamW", jit=jit, lr=0.1)
    own = optim.lr_scheduler.SequentialLR(
        pair.own,
        [optim.lr_scheduler.LinearLR(pair.own, total_iters=3), optim.lr_scheduler.StepLR(pair.own, 2, 0.3)],
        [4],
    )
    scheduler = torch.optim.lr_scheduler
    expected = scheduler.SequentialLR(
        pair.torch, [scheduler.LinearLR(pair.torch, total_iters=3), scheduler.StepLR(pair.torch, 2, 0.3)], [4]
    )
    for _ in range(STEPS):
        pair.step()
        own.step()
        expected.step()
        assert own.get_last_lr() == expected.get_last_lr()
    pair.check()


class Halving(nn.learning_rate_schedule.LearningRateSchedule):
    def construct(self, step):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return 0.5 ** ms.ops.cast(step, ms.float32)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    "schedule", [Halving, lambda: [0.5**i for i in range(STEPS)], lambda: (0.5**i for i in range(STEPS))]
)
def test_schedules_of_mindspores(schedule: Callable[[], Any], jit: bool) -> None:
    pair = Compared("SGD", jit=jit, lr=0.5)
    pair.own = optim.SGD(halves(pair.net.trainable_params(), lr=0.25), lr=schedule())
    pair.torch = torch.optim.SGD(halves(pair.module.parameters(), lr=0.25), lr=1.0)
    pair._apply = ms.jit(pair.own) if jit else pair.own
    for step in range(STEPS):
        pair.torch.param_groups[0]["lr"] = 0.5**step
        pair.step()
    pair.check()
    assert int(pair.own.global_step.asnumpy().item()) == STEPS


@pytest.mark.parametrize("jit", [False, True])
def test_a_rate_that_the_step_itself_has_set(jit: bool) -> None:
    pair = Compared("SGD", jit=jit, lr=0.5)
    optimizer = pair.own

    def halve_and_step(gradients):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        ms.ops.assign(optimizer.learning_rate, optimizer.learning_rate * 0.5)
        return optimizer(gradients)

    pair._apply = ms.jit(halve_and_step) if jit else halve_and_step
    for _ in range(STEPS):
        pair.torch.param_groups[0]["lr"] *= 0.5
        pair.step()
        pair.check()


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("set_rate", [ms.Parameter.set_data, ms.ops.assign])
def test_a_rate_that_is_set_before_a_step(set_rate: Any, jit: bool) -> None:
    pair = Compared("AdamW", jit=jit, lr=0.5)
    for rate in (0.5, 0.25, 0.125):
        set_rate(pair.own.learning_rate, ms.Tensor(rate, ms.float32))
        pair.torch.param_groups[0]["lr"] = rate
        pair.step()
    pair.check()


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_model_trains_by_it_and_a_callback_sets_the_rate(mode: int) -> None:
    module = torch_net()
    net = layers(module)
    ms.set_context(mode=mode)
    own = optim.AdamW(net.trainable_params(), lr=0.25)
    x, y = data(12, 4), data(12, 3, seed=1)
    batches = mindspore.dataset.NumpySlicesDataset((x, y), shuffle=False).batch(4)
    rate = ms.train.LearningRateScheduler(lambda lr, step: lr / 2 if step == 2 else lr)
    ms.Model(net, tnn.MSELoss(), own).train(2, batches, callbacks=[rate], dataset_sink_mode=False)
    expected = torch.optim.AdamW(module.parameters(), lr=0.25)
    for step in range(6):
        expected.param_groups[0]["lr"] = 0.25 if step < 2 else 0.125
        rows = slice(4 * (step % 3), 4 * (step % 3) + 4)
        expected.zero_grad()
        torch.nn.functional.mse_loss(module(on_device(x[rows])), on_device(y[rows])).backward()
        expected.step()
    for one, parameter in zip(net.trainable_params(), module.parameters(), strict=True):
        assert np.array_equal(one.asnumpy(), parameter.detach().cpu().numpy())


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_loss_scaling(mode: int) -> None:
    def trained(scale: float, wrap: Callable[[Any, Any], Any]) -> list[np.ndarray]:
        net = layers(torch_net())
        with_loss = nn.WithLossCell(net, tnn.MSELoss())
        step = wrap(with_loss, optim.AdamW(net.trainable_params(), lr=0.1, loss_scale=scale))
        step.set_train()
        for _ in range(3):
            step(ms.Tensor(data(4, 4)), ms.Tensor(data(4, 3, seed=1)))
        return [parameter.asnumpy() for parameter in net.trainable_params()]

    ms.set_context(mode=mode)
    plain = trained(1.0, nn.TrainOneStepCell)
    scaled = trained(1024.0, lambda net, own: nn.TrainOneStepCell(net, own, sens=1024.0))
    for one, two in zip(plain, scaled, strict=True):  # a power of two scales without rounding
        assert np.array_equal(one, two)


def test_a_jitted_step_sees_what_changes_outside() -> None:
    pair = Compared("AdamW", jit=True)
    pair.step()
    for groups in (pair.own.param_groups, pair.torch.param_groups):
        groups[0]["lr"] = 0.3
    for own, parameter in zip(pair.net.trainable_params(), pair.module.parameters(), strict=True):
        ms.ops.assign(own, ms.Tensor(data(*parameter.shape, seed=7)))
        parameter.data = on_device(data(*parameter.shape, seed=7))
    pair.run()


def test_a_copy_of_an_optimizer_is_refused() -> None:
    own = optim.SGD(tnn.Linear(2, 2).trainable_params(), lr=1.0)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"^SGD: .* optim.SGD\(copied.trainable_params\(\)\).*load_state_dict"):
            copied(own)


def test_the_first_jitted_step_sees_data_that_pytorch_has_assigned() -> None:
    module = torch.nn.Linear(2, 2, bias=False)
    net = bridge.cell(module)
    own = optim.SGD(net.trainable_params(), lr=1.0)

    @ms.jit
    def step(gradients):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return own(gradients)

    for seed in range(3):
        module.weight.data = on_device(data(2, 2, seed=seed))
        step((ms.Tensor(np.ones((2, 2), np.float32)),))
        expected = data(2, 2, seed=seed) - 1
        assert np.array_equal(own.parameters[0].asnumpy(), expected)
        assert np.array_equal(module.weight.detach().cpu().numpy(), expected)


def test_a_checkpoint_before_the_optimizer_is_seen() -> None:
    net = tnn.Linear(3, 2)
    net.weight.set_data(ms.Tensor(data(2, 3)))
    own = optim.SGD(net.trainable_params(), lr=0.0)
    own((ms.Tensor(data(2, 3)), ms.Tensor(data(2))))
    assert np.array_equal(net.weight.asnumpy(), data(2, 3))


class Signs(torch.optim.Optimizer):
    """An optimizer of one's own."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad.sign(), alpha=group["lr"])


def test_an_optimizer_of_ones_own() -> None:
    own = type("OwnSigns", (optim.Optimizer,), {"torch_class": Signs})
    layer = tnn.Linear(3, 2)
    before = layer.weight.asnumpy().copy()
    own(layer.trainable_params(), lr=0.5)((ms.ops.ones((2, 3)), ms.ops.ones((2,))))
    assert np.array_equal(layer.weight.asnumpy(), before - np.float32(0.5))
    for members in ({}, {"torch_class": Signs, "step": lambda self: None}):
        with pytest.raises(TypeError, match="Wrong: a step is PyTorch's: write the optimizer"):
            type("Wrong", (optim.Optimizer,), members)


def test_the_rate_of_the_next_step() -> None:
    layer = tnn.Linear(3, 2)
    one = optim.SGD(layer.trainable_params(), 0.5)
    schedule = optim.lr_scheduler.LambdaLR(one, lambda epoch: 0.5**epoch)
    one((ms.ops.ones((2, 3)), ms.ops.ones((2,))))
    schedule.step()
    assert one.get_lr() == 0.25 and one.defaults["lr"] == 0.5
    ms.ops.assign(one.learning_rate, ms.Tensor(2.0))  # as MindSpore's callback does
    assert one.state_dict()["param_groups"][0]["lr"] == 2.0
    assert one.get_lr() == 2.0
    ms.ops.assign(one.learning_rate, ms.Tensor(4.0))
    one.param_groups[0]["lr"] *= 0.5
    assert one.get_lr() == 2.0
    two = optim.SGD([{"params": [layer.weight]}, {"params": [layer.bias], "lr": 0.125}], 0.5)
    assert [rate.item() for rate in two.get_lr()] == [0.5, 0.125]


def zeros(*names: str) -> list[ms.Parameter]:
    return [ms.Parameter(ms.Tensor([0.0]), name=name) for name in names]


RATES = [0.125, 0.25, 0.5]
GROUPS: dict[str, Callable[[Any], Any]] = {
    "one": lambda sgd: sgd(zeros("a", "b"), 0.5),
    "of one rate": lambda sgd: sgd([{"params": zeros("a", "b")}, {"params": zeros("c")}], 0.5),
    "one with a rate": lambda sgd: sgd([{"params": zeros("a", "b")}, {"params": zeros("c"), "lr": 0.25}], 0.5),
    "all with rates": lambda sgd: sgd([{"params": zeros(name), "lr": 0.25} for name in "abc"], 0.5),
    "scheduled": lambda sgd: sgd(zeros("a", "b"), iter(RATES)),
    "one not scheduled": lambda sgd: sgd([{"params": zeros("a", "b")}, {"params": zeros("c"), "lr": 0.25}], RATES),
    "first scheduled": lambda sgd: sgd([{"params": zeros("a"), "lr": RATES}, {"params": zeros("b", "c")}], 0.5),
    "last scheduled": lambda sgd: sgd([{"params": zeros("a")}, {"params": zeros("b", "c"), "lr": RATES}], 0.5),
}


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("groups", GROUPS)
def test_rates_are_got_and_set_as_mindspores(groups: str, jit: bool) -> None:
    def run(sgd: Any) -> list[Any]:
        optimizer = GROUPS[groups](sgd)
        gradients = tuple(ms.ops.ones_like(parameter) for parameter in optimizer.parameters)

        def rates_and_step(gradients):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            rates = optimizer.get_lr()
            if not optimizer.dynamic_lr:
                rate = rates[-1] if isinstance(rates, tuple) else rates
                ms.ops.assign(rate, rate * 2)
            optimizer(gradients)
            return optimizer.get_lr()

        step = ms.jit(rates_and_step) if jit else rates_and_step
        found = []
        for _ in range(2):
            rates = step(gradients)
            found.append([rate.asnumpy().tolist() for rate in (rates if isinstance(rates, tuple) else (rates,))])
            found.append([parameter.asnumpy().tolist() for parameter in optimizer.parameters])
        if not optimizer.dynamic_lr:
            rates = optimizer.get_lr()
            assert all(isinstance(rate, ms.Parameter) for rate in (rates if isinstance(rates, tuple) else (rates,)))
        return found

    assert run(optim.SGD) == run(nn.SGD)


@pytest.mark.parametrize("jit", [False, True])
def test_a_rate_that_is_set_for_one_group(jit: bool) -> None:
    def groups(parameters: Any) -> Any:
        return halves(parameters, lr=0.25)

    pair = Compared("AdamW", groups=groups, jit=jit, lr=0.5)
    for rate in (0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.0625):  # the first ones are what C++ repeats
        if rate != pair.torch.param_groups[1]["lr"]:
            ms.ops.assign(pair.own.get_lr()[-1], ms.Tensor(rate, ms.float32))
            pair.torch.param_groups[1]["lr"] = rate
        pair.step()
        pair.check()
    assert pair.own.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_step_of_a_graph_has_the_rate_of_its_call(by_hand: bool) -> None:
    """On a GPU the graph is launched later than the schedule's step, if nobody waits for it."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(30))).to(torch_device())
    reference = copy.deepcopy(module)
    net = bridge.cell(module)
    own, theirs = optim.SGD(net.trainable_params(), 1e-3), torch.optim.SGD(reference.parameters(), 1e-3)
    schedules = [optim.lr_scheduler.ExponentialLR(own, 0.5), torch.optim.lr_scheduler.ExponentialLR(theirs, 0.5)]
    differentiate = ms.value_and_grad(net, None, own.parameters)

    @ms.jit
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        _, gradients = differentiate(x)
        return own(gradients)

    x = data(16, 64)
    for i in range(8):
        theirs.zero_grad()
        value = reference(on_device(x))
        value.backward(torch.ones_like(value))
        theirs.step()
        step(ms.Tensor(x))
        if by_hand:
            own.param_groups[0]["lr"] = theirs.param_groups[0]["lr"] = 1e-3 / (i + 2)
        else:
            for schedule in schedules:
                schedule.step()
    ms.runtime.synchronize()
    for one, other in zip(module.parameters(), reference.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_graph_gets_the_rates_of_pytorchs_schedules() -> None:
    optimizer = optim.SGD(zeros("a"), 0.5)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    @ms.jit
    def step(gradients):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        rate = optimizer.get_lr() * 1
        optimizer(gradients)
        return rate

    found = []
    for _ in range(4):
        found.append(step((ms.Tensor([1.0]),)).item())
        schedule.step()
    assert found == [0.5, 0.25, 0.125, 0.0625]
    assert optimizer.parameters[0].asnumpy() == -sum(found)


def test_rates_of_groups_that_pytorch_has_set_apart() -> None:
    optimizer = optim.SGD([{"params": zeros("a", "b")}, {"params": zeros("c")}], 0.5)
    optimizer.param_groups[1]["lr"] = 0.125
    assert [rate.item() for rate in optimizer.get_lr()] == [0.5, 0.5, 0.125]
    optimizer((ms.Tensor([1.0]),) * 3)
    assert [parameter.asnumpy().item() for parameter in optimizer.parameters] == [-0.5, -0.5, -0.125]


def test_a_rate_that_is_set_before_a_closure() -> None:
    (parameter,) = zeros("a")
    optimizer = optim.LBFGS([parameter], lr=0.5, max_iter=1)
    ms.ops.assign(optimizer.get_lr(), ms.Tensor(0.25, ms.float32))
    optimizer.step(lambda: (ms.Tensor(1.0), (ms.Tensor([1.0]),)))
    assert parameter.asnumpy() == -0.25


@pytest.mark.parametrize("closure", [lambda: ms.Tensor(1.0), lambda: None])
def test_a_closure_gives_gradients_too(closure: Any) -> None:
    with pytest.raises(TypeError, match=r"LBFGS: the closure gives \(loss, gradients\)"):
        optim.LBFGS(tnn.Linear(3, 2).trainable_params()).step(closure)


def test_lbfgs_by_a_closure() -> None:
    module = torch_net()
    net = layers(module)
    own = optim.LBFGS(net.trainable_params(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
    expected = torch.optim.LBFGS(module.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
    x, y = data(5, 4), data(5, 3, seed=1)
    mse = tnn.MSELoss()
    gradient = ms.value_and_grad(lambda: mse(net(ms.Tensor(x)), ms.Tensor(y)), None, net.trainable_params())

    def closure() -> torch.Tensor:
        expected.zero_grad()
        loss = torch.nn.functional.mse_loss(module(on_device(x)), on_device(y))
        loss.backward()
        return loss

    for _ in range(3):
        assert float(own.step(gradient)) == float(expected.step(closure))
    for one, parameter in zip(net.trainable_params(), module.parameters(), strict=True):
        assert np.array_equal(one.asnumpy(), parameter.detach().cpu().numpy())


def sgd(**options: Any) -> Any:
    return optim.SGD(tnn.Linear(2, 2).trainable_params(), **options)


def compiled(optimizer: Any) -> Any:
    @ms.jit
    def step(gradients):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return optimizer(gradients)

    return step


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: sgd(lr=-1.0), ValueError, "Invalid learning rate: -1.0"),
        (lambda: sgd(rate=1.0), TypeError, "rate"),
        (lambda: sgd(lr="1e-3"), TypeError, "not supported between instances of"),
        (lambda: optim.SGD([], lr=0.1), ValueError, "empty parameter list"),
        (lambda: optim.SGD(torch.nn.Linear(2, 2).parameters()), TypeError, "takes MindSpore's Parameters"),
        (lambda: optim.SGD(bridge.cell(torch.nn.Linear(2, 2))), TypeError, r"ModuleCell: give net\.trainable_params"),
        (lambda: optim.SGD(ms.Tensor(1.0)), TypeError, "list of Parameters or of groups"),
        (lambda: optim.SGD([{"params": [], "order_params": 1}]), TypeError, "no order_params"),
        (
            lambda: optim.SGD([{"parms": []}]),
            ValueError,
            "a group has its Parameters under params, and this one has 'parms'",
        ),
        (lambda: optim.SGD(None), TypeError, "groups, not a NoneType"),  # type: ignore[arg-type]  # it is wrong
        (lambda: sgd(learning_rate=0.1), TypeError, "SGD: .*learning_rate.*: the learning rate is lr"),
        (lambda: sgd(lr=[]), ValueError, "a schedule without rates"),
        (lambda: sgd().step((ms.Tensor(1.0),)), TypeError, "call the optimizer with the gradients"),
        (lambda: sgd(differentiable=True), ValueError, "leave differentiable out"),
        (lambda: sgd().zero_grad(), RuntimeError, "leave zero_grad out"),
        (lambda: sgd().step(), TypeError, "call the optimizer with the gradients"),
        (lambda: sgd()((ms.Tensor(1.0), (ms.Tensor(1.0),))), TypeError, "SGD takes .* and one is of type tuple"),
        (lambda: sgd()({"weight": ms.Tensor(1.0)}), TypeError, "and one is of type dict"),
        (lambda: compiled(sgd())((data(2, 2), data(2))), TypeError, "and one is of type ndarray"),
        (lambda: sgd()((ms.Tensor(1.0),)), ValueError, "SGD has 2 parameters, and was given 1 gradients"),
        (
            lambda: sgd()((ms.Tensor(1.0), ms.Tensor(1.0))),
            RuntimeError,
            "gradient of size|assigned grad has data of a different size",
        ),
        (
            lambda: compiled(sgd())((ms.Tensor(data(2, 2)), ms.Tensor(data(3)))),
            RuntimeError,
            r"(gradient of size|assigned grad has data of a different size)(.|\n)*In file .*test_optim",
        ),
        (lambda: optim.lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)]), 2), TypeError, "of bridge.optim"),
        (lambda: optim.SparseAdam, AttributeError, "use Adam"),
        (lambda: optim.Adan, AttributeError, "neither has the installed torch.optim"),
    ],
)
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


class Interrupted(Signs):
    """An optimizer in whose first steps the user presses Ctrl-C."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        state = self.state[self.param_groups[0]["params"][0]]
        state["steps"] = state.get("steps", 0) + 1
        if state["steps"] < 3:
            raise KeyboardInterrupt
        super().step(closure)


def test_an_interrupt_in_a_graph_is_one() -> None:
    """`except Exception` does not take it for an error, and the next step works."""
    layer = tnn.Linear(3, 2)
    before = layer.weight.asnumpy().copy()
    optimizer = type("OwnInterrupted", (optim.Optimizer,), {"torch_class": Interrupted})(layer.trainable_params(), 0.5)

    @ms.jit
    def step(*gradients):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return optimizer(gradients)

    gradients = ms.ops.ones((2, 3)), ms.ops.ones((2,))
    for _ in range(2):
        with pytest.raises(class_at_sync(KeyboardInterrupt), match="KeyboardInterrupt"):
            step(*gradients)
            ms.runtime.synchronize()
    step(*gradients)
    assert np.array_equal(layer.weight.asnumpy(), before - np.float32(0.5))


def test_an_error_in_a_graph_is_pytorchs() -> None:
    pair = Compared("AdamW", jit=True)
    pair.step()
    pair.own.param_groups[0]["betas"] = None
    with pytest.raises(class_at_sync(TypeError), match="AdamW: cannot unpack non-iterable NoneType"):
        pair.step()
