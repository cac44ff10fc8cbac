"""What is around a call: `torch.autocast`, `torch.inference_mode`, and the line of an error."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import bridge
from bridge import _mindspore, aten, optim
from bridge import torch as T
from bridge.nn import functional as F
from bridge.op import devices
from shared import data, on_device, torch_device

STEPS = [(0, 1, 2), (1, 2), (0, 1), ()]
KIND = torch.device(torch_device()).type


def make() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))


def casting(on: bool) -> Any:
    return torch.autocast(KIND, torch.bfloat16) if on else contextlib.nullcontext()


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("value_and_grad", [ms.value_and_grad, bridge.value_and_grad])
@pytest.mark.parametrize("steps", STEPS)
def test_a_step_follows_autocast(steps: tuple[int, ...], value_and_grad: Callable[..., Any], jit: bool) -> None:
    module = make()
    expected = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    own, reference = optim.SGD(net.trainable_params(), 0.1), torch.optim.SGD(expected.parameters(), 0.1)
    x, labels = data(6, 4), torch.arange(6) % 3

    def loss_of(x, labels):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return F.cross_entropy(net(x), labels)

    differentiate = value_and_grad(loss_of, None, own.parameters)

    def step(x, labels):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        loss, gradients = differentiate(x, labels)
        own(gradients)
        return loss

    take = ms.jit(step) if jit else step
    for i in range(3):
        with casting(i in steps):
            loss = take(ms.Tensor(x), ms.Tensor(labels.numpy()))
            value = torch.nn.functional.cross_entropy(expected(on_device(x)), labels.to(torch_device()))
        reference.zero_grad()
        value.backward()
        reference.step()
        assert loss.item() == value.item(), i
    ms.runtime.synchronize()
    for name, value in expected.state_dict().items():
        assert torch.equal(net.module.state_dict()[name], value), name


class Routes(torch.nn.Module):
    """Its router is float32 on purpose: in float16 its gradients are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.router = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.body(x) + self.body(x * 2)
        with torch.autocast(KIND, enabled=False):
            return self.router(hidden.float()).softmax(-1)[:, 0].mean() * 1e-6


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("value_and_grad", [ms.value_and_grad, bridge.value_and_grad])
def test_backward_is_outside_of_autocast(value_and_grad: Callable[..., Any], jit: bool) -> None:
    torch.manual_seed(0)
    module, x = Routes(), data(6, 4)
    expected = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    differentiate = value_and_grad(net, None, net.trainable_params())

    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    take = ms.jit(step) if jit else step
    for caches in (True, False, True):
        with torch.autocast(KIND, torch.bfloat16, cache_enabled=caches):
            loss = expected(on_device(x))
        wanted = torch.autograd.grad(loss, list(expected.parameters()))
        with torch.autocast(KIND, torch.bfloat16, cache_enabled=caches):
            _, gradients = take(ms.Tensor(x))
        for own, other in zip(gradients, wanted, strict=True):
            assert (own.asnumpy() == other.cpu().numpy()).all()


def test_a_capture_leaves_no_casts_of_autocasts() -> None:
    class Float(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.float()

    net = bridge.cell(torch.nn.Sequential(make().eval(), Float()))

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    with casting(True):
        found = [f(ms.Tensor(data(size, 4))).asnumpy() for size in (3, 2) for f in (call, net)]
    assert (found[0] == found[1]).all() and (found[2] == found[3]).all()


class Experts(torch.nn.Module):
    """Sizes that data decides: programs for further ones are captured on threads of MindSpore's."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = torch.nn.Linear(4, 2), torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen, found = self.gate(x).argmax(-1), torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = torch.where(chosen == i)[0]
            found = found.index_add(0, rows, expert(x[rows]).to(x.dtype))
        return found.sum()


@pytest.mark.parametrize("jit", [False, True])
def test_autocast_holds_for_sizes_that_data_decides(jit: bool) -> None:
    torch.manual_seed(0)
    module = Experts()
    expected, net = copy.deepcopy(module).to(torch_device()), bridge.cell(module)

    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    take = ms.jit(step) if jit else step
    for seed in range(4):
        x = data(6, 4, seed=seed)
        with casting(True):
            assert take(ms.Tensor(x)).asnumpy() == expected(on_device(x)).item()


@pytest.mark.parametrize("jit", [False, True])
def test_to_float_holds_where_gradients_are_one_operator(jit: bool) -> None:
    module, x, labels = make(), data(6, 4), torch.arange(6) % 3
    net = bridge.cell(module)

    def loss_of(x, labels):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return F.cross_entropy(T.to(net(x), T.float32), labels)

    for dtype, kind in ((ms.bfloat16, torch.bfloat16), (ms.float32, torch.float32)):
        net.to_float(dtype)
        differentiate = bridge.value_and_grad(loss_of, None, net.trainable_params())

        def call(x, labels, differentiate=differentiate):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return differentiate(x, labels)

        loss, gradients = (ms.jit(call) if jit else call)(ms.Tensor(x), ms.Tensor(labels.numpy()))
        expected = copy.deepcopy(module)
        with torch.autocast(KIND, kind, enabled=kind != torch.float32):
            found = expected(on_device(x))
        value = torch.nn.functional.cross_entropy(found.float(), labels.to(torch_device()))
        value.backward()
        assert loss.item() == value.item()
        for own, parameter in zip(gradients, expected.parameters(), strict=True):
            assert parameter.grad is not None
            assert torch.equal(torch.from_numpy(own.asnumpy()), parameter.grad.cpu())


def test_functions_follow_autocast_and_operators_refuse_it(mode: Callable[..., Any]) -> None:
    def multiplied(x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return T.matmul(T.add(x, y), y)

    def by_operator(x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.matmul(x, y)

    x, y = ms.Tensor(data(3, 3)), ms.Tensor(data(3, 3))
    call, refused = mode(multiplied), mode(by_operator)
    for on in (False, True, False):
        with casting(on):
            found = call(x, y)
            expected = torch.matmul(on_device(x.asnumpy()) + on_device(y.asnumpy()), on_device(y.asnumpy()))
        assert found.dtype == (ms.bfloat16 if on else ms.float32)
        assert (T.to(found, T.float32).asnumpy() == expected.float().cpu().numpy()).all()
    with (
        casting(True),
        pytest.raises(RuntimeError, match=r"aten\.matmul: torch\.autocast does not reach the operators"),
    ):
        refused(x, y)


@pytest.mark.usefixtures("own_programs")
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("value_and_grad", [ms.value_and_grad, bridge.value_and_grad])
def test_a_model_is_evaluated_and_trained_in_inference_mode(value_and_grad: Callable[..., Any], jit: bool) -> None:
    module = make()
    expected = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    own, reference = optim.AdamW(net.trainable_params(), 0.1), torch.optim.AdamW(expected.parameters(), 0.1)
    x = data(6, 4)

    def loss_of(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return T.sum(F.gelu(net(x)))

    differentiate = value_and_grad(loss_of, None, own.parameters)

    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        loss, gradients = differentiate(x)
        own(gradients)
        return loss

    def predicted(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    take, predict = (ms.jit(step), ms.jit(predicted)) if jit else (step, predicted)
    for inside in (False, True, False):
        for mode in (True, False):
            net.set_train(mode)
            expected.train(mode)
            with torch.inference_mode():
                found, value = predict(ms.Tensor(x)), expected(on_device(x))
            assert torch.equal(torch.from_numpy(found.asnumpy()), value.cpu())
        net.set_train()
        expected.train()
        with torch.inference_mode() if inside else contextlib.nullcontext():
            take(ms.Tensor(x))  # MindSpore says what has gradients
        reference.zero_grad()
        torch.nn.functional.gelu(expected(on_device(x))).sum().backward()
        reference.step()
    ms.runtime.synchronize()
    for name, value in expected.state_dict().items():
        assert torch.equal(net.module.state_dict()[name], value), name


class Outer(ms.nn.Cell):
    def __init__(self, inner: ms.nn.Cell) -> None:
        super().__init__()
        self.inner = inner

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.inner(x)


@pytest.mark.parametrize("wrap", [lambda cell: cell, Outer], ids=["its own", "of a Cell around it"])
def test_a_graph_follows_to_float(wrap: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
    expected, x = copy.deepcopy(module).to(torch_device()), data(3, 4)
    cell = wrap(bridge.cell(module))

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return cell(x)

    for dtype, torch_dtype in (
        (None, torch.float32),
        (ms.float16, torch.float16),
        (ms.bfloat16, torch.bfloat16),
        (ms.float32, torch.float32),
        (ms.float16, torch.float16),
    ):
        if dtype is not None:
            cell.to_float(dtype)
        with torch.autocast(KIND, torch_dtype, enabled=torch_dtype != torch.float32):
            wanted = expected(on_device(x)).float().cpu()
        found = aten.to(call(ms.Tensor(x)), torch.float32)  # MindSpore's own cast knows no bfloat16 on a GPU
        assert torch.equal(torch.from_numpy(found.asnumpy()), wanted), dtype


class Doubling(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {})) * 2


class DoublingBelow(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {})) * 2


@contextlib.contextmanager
def hook_of_all() -> Iterator[None]:
    handle = register_module_forward_hook(lambda *_: None)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize(
    "around, words",
    [
        (hook_of_all, "hooks of all modules, which run in PyNative mode only"),
        (Doubling, "Doubling is a mode of PyTorch's"),
        (DoublingBelow, "DoublingBelow is a mode of PyTorch's"),
    ],
)
def test_what_is_around_all_calls_is_refused_while_it_is_there(around: Callable[[], Any], words: str) -> None:
    net, x = bridge.cell(make()), ms.Tensor(data(3, 4))

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    expected = net(x).asnumpy()
    for _ in range(2):
        with around(), pytest.raises(RuntimeError, match=words):
            call(x)
        assert (call(x).asnumpy() == expected).all()


@contextlib.contextmanager
def setting(change: Callable[[Any], None], value: Any, before: Any) -> Iterator[None]:
    change(value)
    try:
        yield
    finally:
        change(before)


SETTINGS: list[tuple[Callable[[Any], None], Any, Any]] = [
    (torch.set_float32_matmul_precision, "medium", "highest"),
    (torch.use_deterministic_algorithms, True, False),
    (torch.set_default_dtype, torch.float64, torch.float32),
]


@pytest.mark.parametrize("change, value, before", SETTINGS)
def test_a_setting_that_is_changed_around_a_call_is_refused(change: Any, value: Any, before: Any) -> None:
    class Changes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with setting(change, value, before):
                y = (x @ x.mT).cumsum(0)
            return y + 1

    net, x = bridge.cell(Changes()), ms.Tensor(data(3, 4))

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    with pytest.raises(RuntimeError, match=r"is another around a call than afterwards[^$]*\(x @ x.mT\)"):
        call(x)
    assert net(x).shape == (3, 3)


def test_a_setting_that_a_module_leaves_is_taken() -> None:
    class Sets(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.set_float32_matmul_precision("highest")
            return x @ x.mT

    net, x = bridge.cell(Sets()), ms.Tensor(data(3, 4))

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    assert (call(x).asnumpy() == net(x).asnumpy()).all()


def test_a_graph_follows_the_device_that_tensors_are_made_on() -> None:
    class Makes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + (1 if torch.empty(0).device.type == "meta" else 2)

    net, x = bridge.cell(Makes()), ms.Tensor(data(3, 4))

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    for device, added in (("cpu", 2), ("meta", 1), ("cpu", 2)):
        with torch.device(device):
            found = call(x)
        assert (found.asnumpy() == x.asnumpy() + added).all()


class Factors(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.exp(y)
        return torch.linalg.cholesky(x) @ z


def test_an_error_of_a_run_has_the_modules_line() -> None:
    net, y = bridge.cell(Factors()), ms.Tensor(data(2, 2))

    @ms.jit
    def call(x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x, y)

    call(ms.Tensor([[1.0, 0.0], [0.0, 1.0]]), y)
    with pytest.raises(
        RuntimeError, match=r"(?s)linalg.cholesky: .*test_programs_surroundings.py:\d+, in forward\n.*@ z"
    ):
        call(ms.Tensor([[-1.0, 0.0], [0.0, 1.0]]), y)
        ms.runtime.synchronize()


@pytest.mark.skipif(devices.target() == "GPU", reason="MindSpore launches on threads of its own there")
def test_graphs_on_a_cpu_launch_where_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    for own, expected in (
        ("", "pipeline:false"),
        ("multi_stream:false", "multi_stream:false,pipeline:false"),
        ("pipeline:true", "pipeline:true"),
    ):
        monkeypatch.setenv("MS_DEV_RUNTIME_CONF", own)
        _mindspore.launch_where_graphs_run.__wrapped__()
        assert os.environ["MS_DEV_RUNTIME_CONF"] == expected


def test_a_graph_has_parameters_without_elements(mode: Callable[..., Any]) -> None:
    class Registers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = torch.nn.Parameter(torch.zeros(0, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, self.tokens])

    net, x = bridge.cell(Registers()), ms.Tensor(data(3, 4))
    assert mode(net)(x).asnumpy().tobytes() == x.asnumpy().tobytes()
