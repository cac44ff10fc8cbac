"""Steps of optimizers that are made without PyTorch's Python have the bits of those that it makes."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from bridge import aten, optim
from bridge.optim import in_parts
from bridge.optim.launched import Launched
from bridge.optim.recording import Recording
from bridge.optim.repeated_step import RepeatedStep
from shared import MODES, data, on_device, torch_device

Mode = Callable[..., Any]
SHAPES = (4, 3), (5,), (2, 3, 4), ()
STEPS = 9


class Pair:
    """PyTorch's optimizer and the bridge's, over the same values."""

    def __init__(self, name: str, mode: Mode, shapes: Any = SHAPES, **options: Any) -> None:
        self.values = [np.asarray(data(*shape)) for shape in shapes]
        self.theirs = [torch.nn.Parameter(on_device(value)) for value in self.values]
        self.own = [ms.Parameter(ms.Tensor(value), name=f"p{i}") for i, value in enumerate(self.values)]
        self.torch = getattr(torch.optim, name)(self.theirs, **options)
        self.bridge = getattr(optim, name)(self.own, **options)
        optimizer = self.bridge

        def run(*gradients):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return optimizer(gradients)

        self.run = mode(run)
        self.count = 0

    def step(self) -> None:
        self.count += 1
        generator = np.random.default_rng(self.count)
        gradients = [generator.standard_normal(value.shape).astype(np.float32) for value in self.values]
        for parameter, gradient in zip(self.theirs, gradients, strict=True):
            parameter.grad = on_device(gradient) if parameter.requires_grad else None
        self.torch.step()
        self.run(*map(ms.Tensor, gradients))

    def set(self, **options: Any) -> None:
        for optimizer in (self.torch, self.bridge):
            optimizer.param_groups[0].update(options)

    def is_equal(self) -> bool:
        return all(
            np.array_equal(own.asnumpy(), theirs.detach().cpu().numpy())
            for own, theirs in zip(self.own, self.theirs, strict=True)
        )


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Why each step that PyTorch's Python made is no other's, or ""; one that was not recorded is not in it."""
    found: list[str] = []
    run = Recording.run

    def noted(self: Recording, *args: Any) -> None:
        run(self, *args)
        found.append(self.lost)

    monkeypatch.setattr(Recording, "run", noted)
    yield found


REPEATED = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "maximize": True, "foreach": True}),
    ("Adam", {}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("Adam", {"fused": True}),
    ("AdamW", {}), ("AdamW", {"foreach": True, "maximize": True}), ("AdamW", {"fused": True}),
    ("NAdam", {}), ("NAdam", {"foreach": True}), ("Adagrad", {"lr_decay": 0.1}), ("Adadelta", {}),
    ("Adamax", {"weight_decay": 0.1}), ("Adamax", {"foreach": True}), ("RMSprop", {"centered": True, "momentum": 0.9}),
]  # fmt: skip


@pytest.mark.parametrize("name, options", REPEATED)
def test_steps_are_repeated(name: str, options: Any, mode: Mode, recordings: list[str]) -> None:
    pair = Pair(name, mode, **options)
    for _ in range(STEPS):
        pair.step()
    assert pair.is_equal()
    assert recordings[-2:] == ["", ""]
    assert len(recordings) in (2, 3)  # of nine; the first one makes the state


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many parameters are in each part of a step."""
    found: list[int] = []
    bounds = in_parts._bounds

    def noted(lists: Any) -> list[int]:
        found.extend(end - begin for begin, end in itertools.pairwise(bounds(lists)))
        return bounds(lists)

    monkeypatch.setattr(in_parts, "DEVICES", {"cpu", "cuda"})
    monkeypatch.setattr(in_parts, "SMALLEST", 64)
    monkeypatch.setattr(in_parts, "_bounds", noted)
    yield found


@pytest.mark.parametrize(
    "name, options", [*REPEATED, ("RAdam", {}), ("Rprop", {}), ("ASGD", {}), ("Adadelta", {"maximize": True})]
)
def test_steps_in_parts(name: str, options: Any, mode: Mode, parts: list[int]) -> None:
    shapes = [(4, 3), (2,), (3, 5), (1,), (6, 7)]
    options = options if "fused" in options else {**options, "foreach": True}
    pair = Pair(name, mode, shapes=shapes, **options)
    for _ in range(STEPS):
        pair.step()
    assert pair.is_equal()
    assert set(parts) == {1, 2} and sum(parts) % len(shapes) == 0


def test_steps_of_two_threads(parts: list[int]) -> None:
    """The second begins while the first is taken. Afterwards PyTorch's function is its own again."""
    own = vars(torch.optim.Optimizer)[in_parts._NAME]
    pair = Pair("AdamW", MODES["pynative"], foreach=True)
    with in_parts.in_parts():
        found: list[Any] = []

        def other() -> None:
            with in_parts.in_parts():
                found.append(pair.torch.param_groups[0]["params"])
                for parameter in found[0]:
                    parameter.grad = torch.ones_like(parameter)
                pair.torch.step()

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert found and not parts
        pair.torch.step()
        assert parts
    assert vars(torch.optim.Optimizer)[in_parts._NAME] is own


def test_what_lies_otherwise_in_memory_is_in_one_part(parts: list[int]) -> None:
    parameters = [torch.zeros(8, 3), torch.zeros(5, 3)]
    across = [torch.zeros(8, 3), torch.zeros(3, 5).t()]
    assert in_parts._bounds([parameters, [], parameters]) == [0, 1, 2]
    assert in_parts._bounds([parameters, across]) == [0, 2]


def test_muons_steps_are_repeated(mode: Mode, recordings: list[str]) -> None:
    pair = Pair("Muon", mode, shapes=[(4, 3), (3, 6)])
    for _ in range(STEPS):
        pair.step()
    assert pair.is_equal()
    assert len(recordings) == 3


@pytest.mark.parametrize("name", ["RAdam", "Adafactor", "Rprop", "ASGD"])
def test_steps_that_do_not_follow_are_pytorchs(name: str, mode: Mode, recordings: list[str]) -> None:
    pair = Pair(name, mode)
    for _ in range(20):
        pair.step()
    assert pair.is_equal()
    assert all(recordings)
    assert len(recordings) == 16


def change_rate(pair: Pair) -> None:
    pair.set(lr=0.003)


def make_rate_a_tensor(pair: Pair) -> None:
    for optimizer in (pair.torch, pair.bridge):
        optimizer.param_groups[0]["lr"] = torch.tensor(0.1)


def make_rate_a_float(pair: Pair) -> None:
    pair.set(lr=0.1)


def change_betas(pair: Pair) -> None:
    pair.set(betas=(0.8, 0.99))


def freeze(pair: Pair) -> None:
    pair.theirs[1].requires_grad = pair.own[1].requires_grad = False


def unfreeze(pair: Pair) -> None:
    pair.theirs[1].requires_grad = pair.own[1].requires_grad = True


def load(pair: Pair) -> None:
    state = copy.deepcopy(pair.torch.state_dict())
    for entry in state["state"].values():
        entry["step"] += 5
        entry["exp_avg"] *= 2
    pair.torch.load_state_dict(copy.deepcopy(state))
    pair.bridge.load_state_dict(state)


def write_state(pair: Pair) -> None:
    for optimizer, parameter in ((pair.torch, pair.theirs[0]), (pair.bridge, pair.bridge.update.sharing.tensors[0])):
        optimizer.state[parameter]["step"] -= 4
        optimizer.state[parameter]["exp_avg_sq"].mul_(3)


def set_data(pair: Pair) -> None:
    pair.theirs[0].data = torch.ones(4, 3, device=torch_device())
    pair.own[0].set_data(ms.Tensor(np.ones((4, 3), np.float32)))


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=["", "foreach", "fused"])
def test_what_changes_between_steps_counts(options: Any, mode: Mode, recordings: list[str]) -> None:
    pair = Pair("AdamW", mode, **options)
    changes = [change_rate, write_state, change_betas, freeze, unfreeze, load]
    if not options.get("foreach"):  # which takes no tensor for a rate
        changes[3:3] = [make_rate_a_tensor, make_rate_a_float]
    if mode is MODES["pynative"]:  # MindSpore's compiled function goes on with the data from before
        changes.append(set_data)
    for change in changes:
        for _ in range(4):
            pair.step()
        change(pair)
    for _ in range(4):
        pair.step()
    assert pair.is_equal()
    assert not any(recordings[1:])  # the first makes the state
    assert len(recordings) < 3 * (len(changes) + 1)


def test_schedules_of_pytorch_are_followed(mode: Mode, recordings: list[str]) -> None:
    pair = Pair("Adam", mode)
    theirs = torch.optim.lr_scheduler.ExponentialLR(pair.torch, 0.9)
    own = optim.lr_scheduler.ExponentialLR(pair.bridge, 0.9)
    for _ in range(STEPS):
        pair.step()
        theirs.step()
        own.step()
    assert pair.is_equal()
    assert len(recordings) == 3


def test_a_division_by_zero_is_an_error_as_in_python(mode: Mode) -> None:
    pair = Pair("AdamW", mode)
    for _ in range(STEPS):
        pair.step()
    for tensor in pair.bridge.update.sharing.tensors:
        pair.bridge.state[tensor]["step"].fill_(-1)
    with pytest.raises((ZeroDivisionError, RuntimeError), match="division by zero"):
        pair.run(*map(ms.Tensor, pair.values))


def test_hooks_run_at_each_step(mode: Mode) -> None:
    pair = Pair("AdamW", mode)
    for _ in range(STEPS):
        pair.step()
    calls: list[Any] = []
    hook = pair.bridge.torch_optimizer.register_step_post_hook(lambda *args: calls.append(args))
    for _ in range(3):
        pair.step()
    hook.remove()
    for _ in range(STEPS):
        pair.step()
    assert pair.is_equal()
    assert len(calls) == 3


def test_a_class_that_keeps_things_elsewhere_is_pytorchs(mode: Mode) -> None:
    class Every(torch.optim.SGD):
        count = 0

        def step(self, closure: Any = None) -> Any:
            self.count += 1
            return super().step(closure) if self.count % 3 == 0 else None

    parameter, own = (
        torch.nn.Parameter(on_device(np.ones(3, np.float32))),
        ms.Parameter(ms.Tensor(np.ones(3, np.float32)), name="p"),
    )
    theirs, mine = Every([parameter], 0.1), optim.optimizer.optimizer_class(Every)([own], 0.1)

    def run(gradient):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return mine((gradient,))

    step = mode(run)
    for _ in range(STEPS):
        parameter.grad = torch.ones_like(parameter)
        theirs.step()
        step(ms.Tensor(np.ones(3, np.float32)))
    assert np.array_equal(own.asnumpy(), parameter.detach().cpu().numpy())


class InGraph:
    """PyTorch's optimizer, and the bridge's in a graph that makes the gradients, which lie in the same memory at each
    step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        bases = [np.asarray(data(*shape)) for shape in SHAPES]
        self.bases = [on_device(base) for base in bases]
        self.theirs = [torch.nn.Parameter(torch.ones_like(base)) for base in self.bases]
        self.own = [ms.Parameter(ms.Tensor(np.ones_like(base)), name=f"p{i}") for i, base in enumerate(bases)]
        self.torch, self.bridge = torch.optim.AdamW(self.theirs, **options), optim.AdamW(self.own, **options)
        self.count = self.launches = 0
        launch, optimizer, tensors = Launched.launch, self.bridge, [ms.Tensor(base) for base in bases]

        def counted(launched: Launched, addresses: tuple[int, ...]) -> Any:
            self.launches += 1
            return launch(launched, addresses)

        def run(scale):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            gradients = ()
            for tensor in tensors:
                gradients += (tensor * scale,)
            return optimizer(gradients)

        monkeypatch.setattr(Launched, "launch", counted)
        self.run = ms.jit(run)

    def steps(self, count: int) -> int:
        """Take steps, and give how many of them Python took."""
        before = self.launches
        for _ in range(count):
            self.count += 1
            for parameter, base in zip(self.theirs, self.bases, strict=True):
                parameter.grad = base * float(self.count) if parameter.requires_grad else None
            self.torch.step()
            self.run(ms.Tensor(self.count, ms.float32))
        for own, theirs in zip(self.own, self.theirs, strict=True):
            assert np.array_equal(own.asnumpy(), theirs.detach().cpu().numpy())
        return self.launches - before

    def optimizers(self) -> list[torch.optim.Optimizer]:
        return [self.torch, self.bridge.torch_optimizer]

    def tensors(self) -> list[torch.Tensor]:
        """PyTorch's for the bridge's."""
        return self.bridge.update.sharing.tensors


def rate_of_mindspore(pair: InGraph) -> None:
    pair.torch.param_groups[0]["lr"] = float(np.float32(0.02))
    pair.bridge.learning_rate.set_data(ms.Tensor(0.02, ms.float32))


def other_rate_of_mindspore(pair: InGraph) -> None:
    pair.torch.param_groups[0]["lr"] = float(np.float32(0.04))
    pair.bridge.learning_rate = ms.Parameter(ms.Tensor(0.04, ms.float32), name="learning_rate")


def betas(pair: InGraph) -> None:
    for optimizer in pair.optimizers():
        optimizer.param_groups[0]["betas"] = [0.7, 0.8]


def in_betas(pair: InGraph) -> None:
    for optimizer in pair.optimizers():
        optimizer.param_groups[0]["betas"][0] = 0.75


def groups(pair: InGraph) -> None:
    for optimizer in pair.optimizers():
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.param_groups[0]["weight_decay"] = 0.3


def state(pair: InGraph) -> None:
    for optimizer in pair.optimizers():
        for values in optimizer.state.values():
            values["exp_avg"] = torch.ones_like(values["exp_avg"])


def frozen_in_mindspore(pair: InGraph) -> None:
    pair.own[0].requires_grad = pair.theirs[0].requires_grad = False


def free_in_mindspore(pair: InGraph) -> None:
    pair.own[0].requires_grad = pair.theirs[0].requires_grad = True


def frozen_in_pytorch(pair: InGraph) -> None:
    pair.tensors()[1].requires_grad_(False)
    pair.theirs[1].requires_grad_(False)


def data_of_pytorch(pair: InGraph) -> None:
    for tensor in (pair.tensors()[2], pair.theirs[2]):
        tensor.data = torch.full_like(tensor, 3.0)


def class_of_the_optimizer(pair: InGraph) -> None:
    class Twice(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            super().step(closure)
            return super().step(closure)

    for optimizer in pair.optimizers():
        optimizer.__class__ = Twice


CHANGES = [
    rate_of_mindspore, other_rate_of_mindspore, betas, groups, state, frozen_in_mindspore, frozen_in_pytorch,
    data_of_pytorch, class_of_the_optimizer,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_step_in_a_graph_is_repeated_without_python(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = InGraph(monkeypatch)
    assert pair.steps(16) < 16  # on a GPU, memory comes to lie in its places after some steps
    assert pair.steps(4) == 0
    change(pair)
    pair.steps(8)
    if change is betas:
        in_betas(pair)
    if change is frozen_in_mindspore:
        free_in_mindspore(pair)
    pair.steps(8)


def test_hooks_and_errors_of_a_step_that_is_repeated_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = InGraph(monkeypatch)
    pair.steps(8)
    calls: list[Any] = []
    hook = register_optimizer_step_post_hook(lambda *args: calls.append(args))
    pair.steps(3)
    hook.remove()
    assert len(calls) == 6
    pair.steps(8)
    assert pair.steps(4) == 0
    for tensor in pair.tensors():
        pair.bridge.state[tensor]["step"].fill_(-1)
    with pytest.raises(RuntimeError, match="division by zero"):
        pair.run(ms.Tensor(1.0, ms.float32))
        pair.own[0].asnumpy()


def test_a_step_whose_gradients_lie_elsewhere_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    launches, launch = [], Launched.launch

    def counted(launched: Launched, addresses: tuple[int, ...]) -> Any:
        launches.append(addresses)
        return launch(launched, addresses)

    monkeypatch.setattr(Launched, "launch", counted)
    base = np.asarray(data(3, 4))
    theirs = torch.nn.Parameter(on_device(np.ones_like(base)))
    own = ms.Parameter(ms.Tensor(np.ones_like(base)), name="p")
    expected, optimizer = torch.optim.AdamW([theirs]), optim.AdamW([own])

    @ms.jit
    def step(gradient):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return optimizer((gradient,))

    given = [aten.clone(ms.Tensor(base * (i + 1))) for i in range(24)]
    for i, gradient in enumerate(given):
        if i == 8:
            launches.clear()
        theirs.grad = on_device(base * (i + 1))
        expected.step()
        step(gradient)
    assert np.array_equal(own.asnumpy(), theirs.detach().cpu().numpy())
    assert not launches


SWEPT = [
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}), ("SGD", {"momentum": 0.9, "dampening": 0.1}),
    ("AdamW", {"maximize": True}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("NAdam", {}),
    ("Adagrad", {"lr_decay": 0.1}), ("Adadelta", {"weight_decay": 0.1}), ("Adamax", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9}),
]  # fmt: skip
SPECIAL = [0.0, np.inf, -np.inf, np.nan, 1e-45, -3e-40, 3e38, 1e-30]


class OnTensors:
    """Steps of the same optimizer, one by PyTorch's Python alone."""

    def __init__(self, name: str, tensors: list[torch.Tensor], **options: Any) -> None:
        self.theirs = [torch.nn.Parameter(tensor.clone()) for tensor in tensors]
        self.own = [torch.nn.Parameter(tensor.clone()) for tensor in tensors]
        make = getattr(torch.optim, name)
        self.torch, self.optimizer = make(self.theirs, lr=0.01, **options), make(self.own, lr=0.01, **options)
        self.repeated = RepeatedStep(self.optimizer, self.own)

    def step(self, gradients: list[torch.Tensor], own_gradients: list[torch.Tensor] | None = None) -> set[str] | None:
        """What the step calls of ATen's, if it is one without PyTorch's Python. The gradients are those of both, if
        there are no others."""
        own_gradients = own_gradients or gradients
        for their, own, gradient, other in zip(self.theirs, self.own, gradients, own_gradients, strict=True):
            their.grad, own.grad = gradient, other
        self.torch.step()
        with torch.autograd.profiler.profile() as profile:
            again = self.repeated.again(own_gradients)
        if not again:
            self.repeated.first(own_gradients)
        return {event.name for event in profile.function_events} if again else None

    def check(self) -> None:
        for their, own in zip(self.theirs, self.own, strict=True):
            states = self.torch.state[their].values(), self.optimizer.state[own].values()
            for expected, result in [(their, own), *zip(*states, strict=True)]:
                if isinstance(expected, torch.Tensor):
                    np.testing.assert_array_equal(result.detach().cpu().numpy(), expected.detach().cpu().numpy())
                else:
                    assert result == expected


def numbers(*shape: int) -> torch.Tensor:
    """Of many sizes, and some that are none."""
    values = torch.randn(shape) * torch.exp2(torch.randint(-20, 20, shape))
    if values.numel() > 100:
        values.view(-1)[torch.randperm(values.numel())[: len(SPECIAL)]] = torch.tensor(SPECIAL)
    return values.to(torch_device())


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=torch_device())


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name, options", SWEPT)
def test_swept_steps_have_pytorchs_bits(name: str, options: Any, foreach: bool) -> None:
    torch.manual_seed(0)
    shapes = [(300, 257), (40_001,), (), (0, 3), (1,), (17,), (300, 257)]
    pair = OnTensors(name, [normal(*shape) for shape in shapes], foreach=foreach, **options)
    for _ in range(6):
        calls = pair.step([numbers(*shape) for shape in shapes])
    pair.check()
    assert calls is not None
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") and (foreach or torch_device() == "cpu"):
        assert calls <= {"aten::empty", "cuLaunchKernel"}


def test_more_parameters_than_a_kernel_takes_in_lists() -> None:
    torch.manual_seed(0)
    shapes = [(size % 7 + 1, size) for size in range(300)]
    pair = OnTensors("AdamW", [normal(*shape) for shape in shapes], foreach=True)
    for _ in range(5):
        pair.step([normal(*shape) for shape in shapes])
    pair.check()


@pytest.mark.parametrize("offset", [0, 1])  # from a multiple of 16 bytes
def test_images_whose_channels_come_last(offset: int) -> None:
    def images() -> torch.Tensor:
        return normal(4 * 3 * 5 * 6 + offset)[offset:].view(4, 5, 6, 3).permute(0, 3, 1, 2)

    pair = OnTensors("AdamW", [normal(7), images()], foreach=True)
    for parameter in (pair.theirs[1], pair.own[1]):
        parameter.data = images().copy_(parameter)
    for _ in range(5):
        pair.step([normal(7), images()])
    pair.check()


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.T.contiguous().T


def in_every_second_place(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack([tensor, tensor], -1)[..., 0]


@pytest.mark.parametrize("layout", [transposed, in_every_second_place])
def test_gradients_that_do_not_lie_row_by_row(layout: Callable[[torch.Tensor], torch.Tensor]) -> None:
    pair = OnTensors("AdamW", [normal(30, 7), normal(5, 4)])
    for _ in range(6):
        pair.step([layout(normal(30, 7)), normal(5, 4)])
    pair.check()


def test_parameters_that_lie_otherwise_later() -> None:
    pair = OnTensors("AdamW", [normal(30, 7), normal(5, 4).double()])
    for layout in (torch.Tensor.contiguous, transposed, torch.Tensor.contiguous):
        for parameter in (pair.theirs[0], pair.own[0]):
            parameter.data = layout(parameter.data)
        for _ in range(4):
            pair.step([normal(30, 7), normal(5, 4).double()])
    pair.check()


def test_a_gradient_in_the_parameters_memory() -> None:
    pair = OnTensors("SGD", [torch.zeros(9_000)], momentum=0.9)
    memories = torch.arange(9_005.0), torch.arange(9_005.0)
    pair.theirs[0].data, pair.own[0].data = (memory[5:] for memory in memories)
    for _ in range(6):
        pair.step(*([memory[:9_000]] for memory in memories))
    pair.check()


def test_a_gradient_in_another_parameters_memory() -> None:
    pair = OnTensors("SGD", [torch.zeros(20), torch.zeros(20)], momentum=0.9, foreach=True)
    memories = torch.arange(60.0), torch.arange(60.0)
    for own, memory in zip((pair.theirs, pair.own), memories, strict=True):
        own[0].data, own[1].data = memory[:20], memory[20:40]
    for _ in range(6):
        pair.step(*([memory[40:60], memory[5:25]] for memory in memories))
    pair.check()


@pytest.mark.parametrize("foreach", [False, True])
def test_a_gradient_in_the_memory_of_a_parameter_of_one_number(foreach: bool) -> None:
    pair = OnTensors("AdamW", [torch.ones(1), torch.tensor(2.0)], foreach=foreach, weight_decay=0.1)
    for _ in range(6):
        pair.step(*([own[1].detach().view(1), torch.tensor(0.5)] for own in (pair.theirs, pair.own)))
    pair.check()


@pytest.mark.parametrize("foreach", [False, True])
def test_signs_of_zeros_where_the_average_is_the_gradient(foreach: bool) -> None:
    pair = OnTensors("Adam", [normal(40)], foreach=foreach, betas=(0.0, 0.999))
    for gradient in (1.0, 1.0, 1.0, 1.0, -1.0, -0.0):
        pair.step([torch.full_like(pair.own[0], gradient)])
    averages = [pair.torch.state[pair.theirs[0]], pair.optimizer.state[pair.own[0]]]
    theirs, own = (state["exp_avg"].signbit() for state in averages)
    assert torch.equal(theirs, own)


@pytest.mark.parametrize("foreach", [False, True])
def test_roots_of_denormal_numbers_where_they_are_flushed(foreach: bool) -> None:
    pair = OnTensors("RMSprop", [torch.ones(40)], foreach=foreach, eps=0.0, alpha=1.0)
    for _ in range(4):
        pair.step([torch.ones(40)])
    for parameter, optimizer in ((pair.theirs[0], pair.torch), (pair.own[0], pair.optimizer)):
        optimizer.state[parameter]["square_avg"].view(torch.int32).fill_(0x300000)
    torch.set_flush_denormal(True)
    try:
        assert pair.step([torch.full((40,), 1e-22)]) is not None
    finally:
        torch.set_flush_denormal(False)
    pair.check()


@pytest.mark.parametrize("foreach", [False, True])
def test_a_factor_beyond_float32(foreach: bool) -> None:
    pair = OnTensors("AdamW", [torch.ones(40)], foreach=foreach, weight_decay=1e30)
    for _ in range(4):
        pair.step([torch.ones(40)])
    for optimizer in (pair.torch, pair.optimizer):
        optimizer.param_groups[0]["lr"] = 1e10
    assert pair.step([torch.ones(40)]) is not None
    pair.check()


def test_a_gradient_without_memory() -> None:
    pair = OnTensors("AdamW", [torch.randn(40)])
    for _ in range(4):
        pair.step([torch.randn(40)])
    pair.step([torch._efficientzerotensor(40)])
    pair.check()


def test_autograd_notices_a_step() -> None:
    pair = OnTensors("AdamW", [normal(4, 4)])
    for _ in range(4):
        pair.step([normal(4, 4)])
    result = (pair.own[0] ** 3).sum()
    pair.step([normal(4, 4)])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()
