"""A call of a compiled function that is like one before goes past MindSpore's search for its graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge import _mindspore
from bridge.op import devices
from bridge.programs import modes
from shared import data, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs")]


class Scales(nn.Module):
    """Has a mode, an attribute and a parameter that may change between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(3)), 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.bias if self.training else x - self.bias


@pytest.fixture
def finds(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Counts how often MindSpore looks for a graph."""
    bridge.cell(nn.Linear(1, 1))(ms.Tensor(data(1, 1)))  # what the first call changes is changed
    executor = _mindspore.jit_executor()
    counted = Mock(side_effect=executor.compile)
    monkeypatch.setattr(executor, "compile", lambda *args, **kwargs: counted(*args, **kwargs))
    return counted


def compiled(module: nn.Module) -> Callable[..., Any]:
    net = bridge.cell(module)

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    return ms.jit(call)  # type: ignore[no-any-return]


def check(call: Callable[..., Any], module: nn.Module, x: np.ndarray) -> None:
    with torch.no_grad():
        expected = module(torch.from_numpy(x).to(torch_device())).cpu().numpy()
    np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), expected)


def name_now(call: Callable[..., Any]) -> str:
    """What tells the modes and settings at hand apart for a compiled function."""
    name = modes._name_of(call)
    assert name is not None
    return name()


def is_known(finds: Mock, call: Callable[[], Any]) -> bool:
    before = finds.call_count
    call()
    return bool(finds.call_count == before)


since_2_10 = pytest.mark.skipif(
    not _mindspore._NAMES_ARE_KNOWN, reason="MindSpore 2.8 and 2.9 find their graphs themselves"
)


@since_2_10
def test_tensors_alike_have_the_same_graph(finds: Mock) -> None:
    module = Scales().to(torch_device())
    call = compiled(module)
    for shape in ((2, 3), (4, 3), (2, 3), (4, 3), (5, 1, 3)):
        check(call, module, data(*shape))
    assert is_known(finds, lambda: check(call, module, data(2, 3) + 1))
    assert is_known(finds, lambda: check(call, module, data(4, 3) + 1))
    assert not is_known(finds, lambda: check(call, module, data(6, 3)))
    double = ms.Tensor(data(2, 3).astype(np.float64))
    assert call(double).dtype == ms.float64
    check(call, module, data(2, 3))


def test_what_a_module_has_by_now_counts(finds: Mock) -> None:
    module = Scales().to(torch_device())
    call = compiled(module)
    for _ in range(2):
        check(call, module, data(2, 3))
    module.eval()
    for _ in range(2):
        check(call, module, data(2, 3))
    module.bias = 2.0
    for _ in range(2):
        check(call, module, data(2, 3))
    module.train()
    with torch.no_grad():
        module.weight.mul_(3)
    for _ in range(2):
        check(call, module, data(2, 3))
    module.weight = nn.Parameter(torch.full((3,), 5.0, device=torch_device()))
    check(call, module, data(2, 3))
    module.bias = 0.5
    check(call, module, data(2, 3))


def test_keywords_constants_and_mutable_tensors_are_mindspores(finds: Mock) -> None:
    module = Scales().to(torch_device())
    call, x = compiled(module), ms.Tensor(data(2, 3))
    expected = call(x).asnumpy()
    for given in (x, ms.mutable(ms.Tensor(data(2, 3))), ms.Tensor(data(2, 3), const_arg=True), x):
        for _ in range(2):
            np.testing.assert_array_equal(call(given).asnumpy(), expected)
    np.testing.assert_array_equal(call(x=x).asnumpy(), expected)


def test_a_gradient_has_its_own_graph() -> None:
    module = Scales().to(torch_device())
    call, x = compiled(module), ms.Tensor(data(2, 3))
    for _ in range(2):
        check(call, module, data(2, 3))
        gradient = ms.grad(lambda x: call(x).sum())(x)
        np.testing.assert_array_equal(gradient.asnumpy(), np.ones((2, 3), np.float32))


def test_two_compilations_of_a_function_are_apart() -> None:
    net = bridge.cell(Scales().to(torch_device()))

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    first, second = ms.jit(call), ms.jit(call, jit_level="O0")
    x = ms.Tensor(data(2, 3))
    for _ in range(3):
        np.testing.assert_array_equal(first(x).asnumpy(), second(x).asnumpy())


@since_2_10
def test_tensors_that_are_not_made_yet(finds: Mock) -> None:
    module = Scales().to(torch_device())
    call = compiled(module)
    for _ in range(2):
        check(call, module, data(2, 3))
    late = ms.common.initializer.initializer(ms.common.initializer.One(), [2, 3], ms.float32)
    np.testing.assert_array_equal(call(late).asnumpy(), np.full((2, 3), 1.5, np.float32))
    assert is_known(finds, lambda: check(call, module, data(2, 3)))


def test_graphs_that_mindspore_drops_are_compiled_again() -> None:
    module = Scales().to(torch_device())
    net, scale = bridge.cell(module), 1.0

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x) * scale

    x = ms.Tensor(data(2, 3))
    for _ in range(3):
        expected = call(x).asnumpy()
    scale = 2.0
    ms.reset_auto_parallel_context()
    np.testing.assert_array_equal(call(x).asnumpy(), expected * 2)


@since_2_10
@pytest.mark.skipif(devices.target() == "GPU", reason="on a GPU an error comes later than its call")
def test_a_step_goes_on_after_an_error(finds: Mock) -> None:
    class Checks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.cholesky(x)

    one = np.eye(3, dtype=np.float32)
    call, right, wrong = compiled(Checks()), ms.Tensor(one), ms.Tensor(-one)
    for x in (right, right, wrong, right, right, wrong, wrong, right):
        if x is right:
            np.testing.assert_array_equal(call(x).asnumpy(), one)
        else:
            with pytest.raises(RuntimeError, match="positive-definite"):
                call(x).asnumpy()
    assert is_known(finds, lambda: call(right))


class Shift:
    """An attribute of an object counts, and its class."""

    by = 0.5


class Moved(Shift):
    by = 2.0


class Parts(nn.Sequential):
    """Has an object, a list and an array."""

    def __init__(self) -> None:
        super().__init__(Scales(), nn.Dropout(0.5))
        self.shift, self.factors, self.table = Shift(), [2.0], np.ones(3, np.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.factors[0] * float(self.table[0]) + self.shift.by


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def with_hook() -> Iterator[None]:
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    yield
    hook.remove()


def put(owner: Any, key: Any, value: Any) -> Callable[[], Any]:
    return lambda: owner.__setitem__(key, value)


CHANGES: dict[str, Callable[[Parts, Any], Callable[[], Any]]] = {
    "mode": lambda module, net: module.eval,
    "mode of a part": lambda module, net: module[1].eval,
    "mode of a Cell": lambda module, net: lambda: net.set_train(False),
    "attribute": lambda module, net: lambda: setattr(module[0], "bias", 1.5),
    "list": lambda module, net: put(module.factors, 0, 3.0),
    "array": lambda module, net: put(module.table, 0, 3.0),
    "object": lambda module, net: lambda: setattr(module.shift, "by", 3.0),
    "class of an object": lambda module, net: lambda: setattr(module.shift, "__class__", Moved),
    "frozen": lambda module, net: lambda: module[0].weight.requires_grad_(False),
    "hook": lambda module, net: lambda: module[0].register_forward_hook(lambda *_: None),
    "part": lambda module, net: put(module._modules, "1", nn.Identity()),
}
AROUND = {
    "deterministic algorithms": deterministic,
    "autocast": lambda: torch.autocast(torch_device(), torch.bfloat16),
    "a device": lambda: torch.device("meta"),
    "hooks of all modules": with_hook,
}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Counts how often Python looks at all that the name of a graph follows from."""
    own = modes._Graphs._found_name
    counted = Mock()
    monkeypatch.setattr(modes._Graphs, "_found_name", lambda graphs: (counted(), own(graphs))[1])
    return counted


@since_2_10
@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_noticed(looks: Mock, change: str) -> None:
    module = Parts().to(torch_device())
    net = bridge.cell(module)
    net.set_train()

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    compiled, x = ms.jit(call), ms.Tensor(data(2, 3))
    for _ in range(4):
        compiled(x)
    looks.reset_mock()
    compiled(x)
    assert looks.call_count == 0
    name = name_now(call)
    CHANGES[change](module, net)()
    assert name_now(call) != name


@since_2_10
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_what_is_around_a_call_is_noticed(looks: Mock, around: Callable[[], Any]) -> None:
    net = bridge.cell(Parts().to(torch_device()))

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    compiled, x = ms.jit(call), ms.Tensor(data(2, 3))
    for _ in range(4):
        compiled(x)
    name = name_now(call)
    with around():
        assert name_now(call) != name
    assert name_now(call) == name


def test_a_module_that_changes_in_each_call_is_looked_at_in_each(looks: Mock) -> None:
    module = Scales().to(torch_device())
    call = compiled(module)
    for i in range(40):
        module.train(i % 2 == 0)
        check(call, module, data(2, 3))
    assert looks.call_count >= 40
    looks.reset_mock()
    for _ in range(8):
        check(call, module, data(2, 3))
    assert looks.call_count < 8 or not _mindspore._NAMES_ARE_KNOWN
