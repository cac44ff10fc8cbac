"""Mixed precision reaches the bridge's calls as it reaches MindSpore's own operators: Cell.to_float, mindspore.amp."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import amp, mint, nn, ops

import bridge
from bridge import aten, kernels
from bridge import nn as tnn
from bridge import torch as T

RANDOM = np.random.default_rng(7)
X = RANDOM.standard_normal((4, 8), np.float32)
WEIGHT = RANDOM.standard_normal((8, 8), np.float32)
BIAS = RANDOM.standard_normal(8, np.float32)
HALVES = {ms.float16: torch.float16, ms.bfloat16: torch.bfloat16}


@pytest.fixture(autouse=True)
def own_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.chdir(tmp_path)  # O1 writes the sources that it makes


def array(tensor: ms.Tensor) -> np.ndarray:
    return (tensor.float() if tensor.dtype == ms.bfloat16 else tensor).asnumpy()


def equal(found: ms.Tensor, expected: torch.Tensor) -> None:
    assert str(found.dtype).lower() == str(expected.dtype).removeprefix("torch.")
    np.testing.assert_array_equal(array(found), expected.detach().to(torch.float32).numpy())


class Net(nn.Cell):
    """Calls `function(op, x, weight, bias)`, where the last two are parameters."""

    def __init__(self, function: Callable[..., Any], op: Any = aten) -> None:
        super().__init__()
        self.function = function
        self.op = op
        self.weight = ms.Parameter(ms.Tensor(WEIGHT))
        self.bias = ms.Parameter(ms.Tensor(BIAS))

    def construct(self, x):
        return self.function(self.op, x, self.weight, self.bias)


CALLS = {
    "linear": lambda op, x, w, b: op.linear(x, w, b),
    "matmul": lambda op, x, w, b: op.matmul(x, w),
    "add": lambda op, x, w, b: op.add(x, b),
    "mul by a number": lambda op, x, w, b: op.mul(x, 0.3),
    "gelu": lambda op, x, w, b: op.gelu(x),
    "exp": lambda op, x, w, b: op.exp(x),
    "softmax": lambda op, x, w, b: op.softmax(x, -1),
    "layer_norm": lambda op, x, w, b: op.layer_norm(x, [8], b, b),
    "cat": lambda op, x, w, b: op.cat([x, w]),
    "parameter": lambda op, x, w, b: op.relu(w),
    "masked_select": lambda op, x, w, b: op.masked_select(x, op.gt(x, 0)),
    "integers": lambda op, x, w, b: op.argmax(x, 1),
    "several": lambda op, x, w, b: op.linear(op.relu(op.linear(x, w, b)), w),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_to_float_in_pynative_mode(name: str, dtype: Any) -> None:
    net = Net(CALLS[name]).to_float(dtype)
    tensors = [torch.tensor(value).to(HALVES[dtype]) for value in (X, WEIGHT, BIAS)]
    for _ in range(2):
        equal(net(ms.Tensor(X)), CALLS[name](torch.ops.aten, *tensors))
    equal(aten.relu(ms.Tensor(X)), torch.relu(torch.tensor(X)))  # what runs outside the cell is not cast


@pytest.mark.parametrize("name", ["linear", "matmul", "add", "gelu", "softmax", "masked_select"])
def test_gradients_in_pynative_mode(name: str) -> None:
    net = Net(CALLS[name]).to_float(ms.float16)
    found = ms.grad(lambda x: net(x).sum(), 0, net.trainable_params())(ms.Tensor(X))
    leaves = [torch.tensor(value, requires_grad=True) for value in (X, WEIGHT, BIAS)]
    CALLS[name](torch.ops.aten, *(leaf.half() for leaf in leaves)).sum().backward()
    for gradient, leaf in zip((found[0], *found[1]), leaves, strict=True):
        equal(gradient, torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)


@pytest.mark.parametrize("level", ["O2", "O3"])
def test_levels_that_cast_cells_in_pynative_mode(level: str) -> None:
    net = amp.auto_mixed_precision(Net(CALLS["several"]), level)
    tensors = [torch.tensor(value).half() for value in (X, WEIGHT, BIAS)]
    equal(net(ms.Tensor(X)), CALLS["several"](torch.ops.aten, *tensors).float())


def test_a_cell_in_its_own_precision_inside_another() -> None:
    class Outer(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Net(CALLS["exp"])

        def construct(self, x):
            return aten.exp(self.inner(aten.exp(x)))

    net = Outer().to_float(ms.float16)
    net.inner.to_float(ms.float32)
    x = torch.tensor(X).half()
    equal(net(ms.Tensor(X)), torch.exp(torch.exp(torch.exp(x).float()).half()))


class Pair(nn.Cell):
    """A call of the bridge, or MindSpore's own like it, which decides what is right. For graph mode and O1, which read
    the source."""

    def __init__(self, name: str, ours: bool) -> None:
        super().__init__()
        self.name = name
        self.ours = ours
        self.weight = ms.Parameter(ms.Tensor(WEIGHT))
        self.bias = ms.Parameter(ms.Tensor(BIAS))

    def construct(self, x):
        half = ops.cast(x, ms.float16)
        if self.name == "linear":
            if self.ours:
                return aten.linear(x, self.weight, self.bias)
            return mint.nn.functional.linear(x, self.weight, self.bias)
        if self.name == "matmul":
            return aten.matmul(x, self.weight) if self.ours else mint.matmul(x, self.weight)
        if self.name == "exp":
            return aten.exp(half) if self.ours else mint.exp(half)
        if self.name == "softmax":
            return aten.softmax(half, -1) if self.ours else ops.softmax(half, -1)
        if self.name == "sum":
            return aten.sum(half) if self.ours else mint.sum(half)
        if self.name == "cat":
            return aten.cat([half, x]) if self.ours else ops.concat((half, x))
        if self.name == "relu":
            return aten.relu(x) if self.ours else mint.nn.functional.relu(x)
        if self.name == "relu16":
            return aten.relu(half) if self.ours else mint.nn.functional.relu(half)
        return aten.add(half, self.bias) if self.ours else mint.add(half, self.bias)


NAMES = ["linear", "matmul", "exp", "softmax", "sum", "cat", "relu", "relu16", "add"]


# Without `auto`, MindSpore's concatenation refuses two dtypes there.
CASES = [(level, name) for level in ("O1", "auto") for name in NAMES if (level, name) != ("O1", "cat")]


@pytest.mark.parametrize("level, name", CASES)
def test_levels_that_cast_operators_in_pynative_mode(level: str, name: str) -> None:
    ours, theirs = (amp.auto_mixed_precision(Pair(name, ours), level) for ours in (True, False))
    assert ours(ms.Tensor(X)).dtype == theirs(ms.Tensor(X)).dtype
    ms.grad(lambda x: ours(x).sum())(ms.Tensor(X)).asnumpy()


def test_auto_gives_pytorchs_values() -> None:
    net = amp.auto_mixed_precision(Net(CALLS["linear"]), "auto", ms.bfloat16)
    equal(net(ms.Tensor(X)), torch.nn.functional.linear(*(torch.tensor(v).bfloat16() for v in (X, WEIGHT, BIAS))))


@pytest.mark.parametrize("level", ["O3", "auto"])
def test_results_of_mindspores_operators_that_may_be_under_way(level: str) -> None:
    net = amp.auto_mixed_precision(Net(lambda op, x, w, b: op.masked_select(mint.mul(x, x), mint.gt(x, 0))), level)
    x = torch.tensor(X).half() if level == "O3" else torch.tensor(X)
    equal(net(ms.Tensor(X)), torch.masked_select(x * x, x > 0).float())


def test_statistics_are_kept_in_their_own_precision() -> None:
    class Normalised(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.mean = ms.Parameter(ms.Tensor(np.zeros(8, np.float32)), requires_grad=False)
            self.var = ms.Parameter(ms.Tensor(np.ones(8, np.float32)), requires_grad=False)
            self.weight = ms.Parameter(ms.Tensor(BIAS))

        def construct(self, x):
            return aten.batch_norm(x, self.weight, self.weight, self.mean, self.var, True, 0.1, 1e-5, False)

    net = Normalised().to_float(ms.float16)
    mean, var, weight = torch.zeros(8), torch.ones(8), torch.tensor(BIAS)
    expected = torch.nn.functional.batch_norm(torch.tensor(X).half(), mean, var, weight, weight, True)
    equal(net(ms.Tensor(X)), expected)
    equal(net.mean, mean)
    equal(net.var, var)


def test_a_registered_operator() -> None:
    library = torch.library.Library("bridge_mixed", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CompositeImplicitAutograd")
    double = kernels.registered("bridge_mixed::double")
    net = Net(lambda op, x, w, b: double(x)).to_float(ms.float16)
    equal(net(ms.Tensor(X)), torch.tensor(X).half() * 2)


# In graph mode MindSpore casts what a cell is given. A parameter that goes to a function stays as it is, and what the
# function does with both dtypes is its own matter.


class InGraph(nn.Cell):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.weight = ms.Parameter(ms.Tensor(WEIGHT))
        self.bias = ms.Parameter(ms.Tensor(BIAS))

    def construct(self, x):
        if self.name == "gelu":
            return aten.gelu(x)
        if self.name == "add":
            return aten.add(x, self.bias)
        if self.name == "parameter":
            return aten.relu(self.weight)
        if self.name == "linear":
            return aten.linear(x, self.weight, self.bias)
        if self.name == "matmul":
            return aten.matmul(x, self.weight)
        if self.name == "cast linear":
            return aten.linear(x, ops.cast(self.weight, x.dtype), ops.cast(self.bias, x.dtype))
        return aten.exp(ops.cast(aten.relu(ops.cast(x, ms.float16)), ms.float32))  # "fits auto"


IN_GRAPH = {
    "gelu": lambda x, w, b: torch.ops.aten.gelu(x.half()),
    "add": lambda x, w, b: torch.add(x.half(), b),
    "parameter": lambda x, w, b: torch.relu(w),
    "cast linear": lambda x, w, b: torch.nn.functional.linear(x.half(), w.half(), b.half()),
}


@pytest.mark.parametrize("name", IN_GRAPH)
def test_to_float_in_graph_mode(name: str) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = InGraph(name).to_float(ms.float16)
    equal(net(ms.Tensor(X)), IN_GRAPH[name](torch.tensor(X), torch.tensor(WEIGHT), torch.tensor(BIAS)))


@pytest.mark.parametrize("name", ["linear", "matmul"])
def test_dtypes_that_do_not_fit_are_refused_while_a_graph_is_compiled(name: str) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(RuntimeError, match=r"aten\.\w+: .*type.*cast the parameters too"):
        InGraph(name).to_float(ms.float16).compile(ms.Tensor(X))


@pytest.mark.parametrize("name", NAMES)
def test_levels_that_cast_operators_in_graph_mode(name: str) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    for level in ("O1", "auto"):
        ours, theirs = (amp.auto_mixed_precision(Pair(name, ours), level) for ours in (True, False))
        assert ours(ms.Tensor(X)).dtype == theirs(ms.Tensor(X)).dtype, level


@pytest.mark.parametrize("name", NAMES)
def test_auto_gives_the_same_bits_in_both_modes(name: str) -> None:
    net = amp.auto_mixed_precision(Pair(name, True), "auto", ms.bfloat16)
    expected = array(net(ms.Tensor(X)))
    ms.set_context(mode=ms.GRAPH_MODE)
    np.testing.assert_array_equal(array(net(ms.Tensor(X))), expected)


def test_auto_in_graph_mode_takes_calls_that_need_no_cast() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = amp.auto_mixed_precision(InGraph("fits auto"), "auto")
    equal(net(ms.Tensor(X)), torch.exp(torch.relu(torch.tensor(X).half()).float()))


class Layers(nn.Cell):
    """Layers of both kinds, and a module."""

    def __init__(self) -> None:
        super().__init__()
        self.first = tnn.Linear(8, 8)
        self.module = bridge.cell(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()))
        self.last = nn.Dense(8, 4)

    def construct(self, x):
        return self.last(self.module(self.first(x)))


def test_level_o1_leaves_layers_and_modules_as_they_are() -> None:
    net = Layers()
    expected = net.module(net.first(ms.Tensor(X)))
    changed = amp.auto_mixed_precision(net, "O1")
    np.testing.assert_array_equal(array(changed.module(changed.first(ms.Tensor(X)))), array(expected))
    assert changed(ms.Tensor(X)).shape == (4, 4)


class Programs(nn.Cell):
    """A module, and a function of several calls."""

    def __init__(self) -> None:
        super().__init__()
        self.module = bridge.cell(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()))
        self.function = T.stft

    def construct(self, x, by_function):
        return self.function(x, 4, return_complex=False) if by_function else self.module(x)


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_auto_does_not_reach_into_programs(mode: int) -> None:
    ms.set_context(mode=mode)
    net, x = amp.auto_mixed_precision(Programs(), "auto", ms.bfloat16), ms.Tensor(X)
    for by_function, name in enumerate(("Sequential", "stft")):
        with pytest.raises(RuntimeError, match=f"{name}: the lists of mindspore.amp do not reach into") as error:
            net(x, bool(by_function))
        assert mode == ms.PYNATIVE_MODE or "else self.module(x)" in str(error.value)
    for by_function in (False, True):
        assert Programs()(x, by_function).dtype == ms.float32
    net = Programs()
    net.module.to_float(ms.bfloat16)
    assert amp.auto_mixed_precision(net, "auto", ms.bfloat16)(x, False).dtype == ms.bfloat16


@pytest.mark.parametrize(
    "make",
    [
        lambda: bridge.cell(torch.nn.Linear(8, 4)),
        lambda: tnn.Linear(8, 4),
        lambda: tnn.Sequential(tnn.Linear(8, 8), tnn.GELU(), nn.Dense(8, 4)),
    ],
)
def test_level_o1_leaves_a_network_that_is_a_layer_or_module(make: Callable[[], nn.Cell]) -> None:
    net = make()
    expected = array(net(ms.Tensor(X)))
    for change in (
        lambda net: amp.auto_mixed_precision(net, "O1"),
        lambda net: amp.custom_mixed_precision(net, white_list=amp.get_white_list()),
    ):
        np.testing.assert_array_equal(array(change(net)(ms.Tensor(X))), expected)
    model = ms.train.Model(net, tnn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 1e-2), amp_level="O1")
    np.testing.assert_array_equal(array(model.predict(ms.Tensor(X))), expected)


# `to_float` of a PyTorch module's Cell, or of a layer, is torch.autocast.


class Residual(torch.nn.Module):
    """Gives three results: in float32 of an input in float32, in the lower precision, and of both. None of them may see
    an input that was cast."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = torch.nn.LayerNorm(8)
        self.batch_norm = torch.nn.BatchNorm1d(8)
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, target: torch.Tensor, scale: torch.Tensor) -> Any:
        linear = self.linear(self.batch_norm(self.norm(x)))
        return (linear.float() - target).square().mean() * scale, linear, x + linear, torch.softmax(x, -1), x.sum()


class Around(nn.Cell):
    def __init__(self, cell: nn.Cell) -> None:
        super().__init__()
        self.cell = cell

    def construct(self, x, target, scale):
        return self.cell(x, target, scale=scale)


WRAPS: dict[str, Callable[[nn.Cell, Any], nn.Cell]] = {
    "cell": lambda cell, dtype: cell.to_float(dtype),
    "in another": lambda cell, dtype: Around(cell.to_float(dtype)),
    "changed": lambda cell, dtype: Around(cell.to_float(ms.float32).to_float(dtype)),
}
TARGET = RANDOM.standard_normal((4, 8), np.float32)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("is_in_graph", [False, True])
def test_a_modules_to_float_is_torch_autocast(is_in_graph: bool, wrap: str, dtype: Any) -> None:
    module = Residual()
    leaves = [torch.tensor(value, requires_grad=True) for value in (X, TARGET)]
    with torch.autocast("cpu", HALVES[dtype]):
        expected = module(*leaves, scale=torch.tensor(3.001))
    expected[0].backward()
    net = WRAPS[wrap](bridge.cell(Residual()), dtype)

    def results(x, target, scale):
        return net(x, target, scale=scale)

    differentiate = ms.value_and_grad(results, (0, 1), net.trainable_params(), has_aux=True)

    def step(x, target, scale):
        return differentiate(x, target, scale)

    given = ms.Tensor(X), ms.Tensor(TARGET), ms.Tensor(3.001)
    found, (of_inputs, of_weights) = (ms.jit(step) if is_in_graph else step)(*given)
    for own, other in zip(found, expected, strict=True):
        equal(own, other)
    gradients = [leaf.grad for leaf in (*leaves, *module.parameters())]
    for own, other in zip((*of_inputs, *of_weights), gradients, strict=True):
        assert other is not None
        equal(own, other)
    statistics = dict(module.named_buffers())["batch_norm.running_mean"]
    equal(dict(net.parameters_and_names())[_path(net, "batch_norm.running_mean")], statistics)


def _path(net: nn.Cell, name: str) -> str:
    return f"cell.{name}" if isinstance(net, Around) else name


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_a_layers_to_float_is_torch_autocast(mode: int, dtype: Any) -> None:
    modules = {
        "softmax": (torch.nn.Softmax(-1), tnn.Softmax(-1)),
        "norm": (torch.nn.LayerNorm(8), tnn.LayerNorm(8)),
        "several": (
            torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 4)),
            tnn.Sequential(tnn.LayerNorm(8), tnn.Linear(8, 4)),
        ),
    }
    ms.set_context(mode=mode)
    for module, layer in modules.values():
        for parameter, own in zip(module.parameters(), layer.trainable_params(), strict=True):
            own.set_data(ms.Tensor(parameter.detach().numpy()))
        with torch.autocast("cpu", HALVES[dtype]):
            expected = module(torch.tensor(X))
        equal(layer.to_float(dtype)(ms.Tensor(X)), expected)


class Twice(tnn.Linear):
    """Has its own `construct`, for whose calls MindSpore casts."""

    def construct(self, x):
        return super().construct(x), aten.mul(x, 1.001)


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_own_code_in_a_class_of_a_layer_is_cast_for_by_mindspore(mode: int) -> None:
    ms.set_context(mode=mode)
    _, product = Twice(8, 4).to_float(ms.float16)(ms.Tensor(X))
    equal(product, torch.tensor(X).half() * 1.001)


def test_a_cell_around_a_module_casts_its_own_inputs_in_a_graph() -> None:
    class Outer(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.norm = bridge.cell(torch.nn.LayerNorm(8))

        def construct(self, x):
            return self.norm(x)

    net = Outer().to_float(ms.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        in_pynative, in_graph = (net.norm.module(x) for x in (torch.tensor(X), torch.tensor(X).bfloat16()))
    equal(net(ms.Tensor(X)), in_pynative)
    ms.set_context(mode=ms.GRAPH_MODE)
    equal(net(ms.Tensor(X)), in_graph)
