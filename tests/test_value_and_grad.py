"""bridge.value_and_grad gives what mindspore.value_and_grad gives, bit for bit, in both modes, as one operator."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn, ops

import bridge
from bridge import aten, optim
from bridge import nn as tnn
from bridge.torch.nn import functional as F
from shared import data, on_device, torch_device

Mode = Callable[..., Any]


def module() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Dropout(0.3)
    return torch.nn.Sequential(*layers, torch.nn.Linear(8, 3))


def batch() -> tuple[ms.Tensor, ms.Tensor]:
    return ms.Tensor(data(5, 4)), ms.Tensor(np.array([0, 2, 1, 1, 0]))


def same(own: Any, expected: Any) -> bool:
    """Whether two results have one form and the same bits."""
    if isinstance(expected, (int, str)):  # of return_ids
        return type(own) is type(expected) and own == expected
    if isinstance(expected, (tuple, list)):
        return type(own) is type(expected) and len(own) == len(expected) and all(map(same, own, expected))
    return own.dtype == expected.dtype and own.asnumpy().tobytes() == expected.asnumpy().tobytes()


def test_a_training_step_is_mindspores(mode: Mode) -> None:
    """Loss, gradients, buffers and draws, over three steps."""

    def trained(value_and_grad: Any) -> list[Any]:
        net = bridge.cell(module())
        net.set_train()
        optimizer = optim.AdamW(net.trainable_params(), 0.1)

        def loss_of(x, labels):
            return F.cross_entropy(net(x), labels)

        differentiate = value_and_grad(loss_of, None, optimizer.parameters)

        def step(x, labels):
            loss, gradients = differentiate(x, labels)
            optimizer(gradients)
            return loss, gradients

        bridge.manual_seed(1)
        step = mode(step)
        return [*(step(*batch()) for _ in range(3)), *(parameter.value() for parameter in net.get_parameters())]

    assert same(trained(bridge.value_and_grad), trained(ms.value_and_grad))


WEIGHT = ms.Parameter(ms.Tensor(data(4)), name="weight")
FROZEN = ms.Parameter(ms.Tensor(data(4)), name="frozen", requires_grad=False)
UNUSED = ms.Parameter(ms.Tensor(data(2)), name="unused")


def two_results(x, y):
    return aten.mul(aten.sin(x), WEIGHT), aten.exp(aten.mul(x, FROZEN))


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"grad_position": 1},
        {"grad_position": (0, 1)},
        {"grad_position": (0,)},
        {"grad_position": None, "weights": WEIGHT},
        {"grad_position": None, "weights": [WEIGHT]},
        {"weights": ms.ParameterTuple([WEIGHT, FROZEN, UNUSED])},
        {"grad_position": (0, 1), "weights": WEIGHT},
        {"has_aux": True, "weights": WEIGHT},
        {"return_ids": True},
        {"return_ids": True, "grad_position": (1, 0)},
        {"return_ids": True, "grad_position": None, "weights": WEIGHT},
        {"return_ids": True, "grad_position": (0, 1), "weights": [WEIGHT, FROZEN]},
        {"return_ids": True, "has_aux": True, "weights": [WEIGHT]},
    ],
    ids=str,
)
def test_what_is_asked_for_comes_in_mindspores_form(asked: dict[str, Any], mode: Mode) -> None:
    """An argument and a Parameter on which nothing depends have zeros, and so has one that is frozen."""
    x, y = ms.Tensor(data(3, 4)), ms.Tensor(data(2, seed=1))
    own, theirs = (function(two_results, **asked) for function in (bridge.value_and_grad, ms.value_and_grad))

    def run(x, y):
        return own(x, y)

    assert same(mode(run)(x, y), theirs(x, y))


class Loss(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.net = bridge.cell(module())

    def construct(self, x, labels):
        return F.cross_entropy(self.net(x), labels)


def test_ids_of_one_position_in_a_tuple(mode: Mode) -> None:
    """As a graph of MindSpore's has them: in PyNative mode it takes the gradient apart."""
    x, y = ms.Tensor(data(3, 4)), ms.Tensor(data(2, seed=1))
    asked: dict[str, Any] = {"grad_position": (0,), "weights": WEIGHT, "return_ids": True}
    own, theirs = (function(two_results, **asked) for function in (bridge.value_and_grad, ms.value_and_grad))

    def run(x, y):
        return own(x, y)

    @ms.jit
    def expected(x, y):
        return theirs(x, y)

    assert same(mode(run)(x, y), expected(x, y))


def test_a_cell_is_differentiated_in_its_mode() -> None:
    loss, (x, labels) = Loss(), batch()
    weights = loss.trainable_params()
    own, theirs = (make(loss, None, weights) for make in (bridge.value_and_grad, ms.value_and_grad))
    for training in (False, True):
        loss.set_train(training)
        before = copy.deepcopy(loss.net.module.state_dict())
        bridge.manual_seed(2)
        found = own(x, labels)
        loss.net.module.load_state_dict(before)
        bridge.manual_seed(2)
        assert same(found, theirs(x, labels))


def test_it_keeps_the_name_and_the_arguments() -> None:
    differentiated = bridge.value_and_grad(two_results)
    assert differentiated.__name__ == "two_results"
    x, y = ms.Tensor(data(3, 4)), ms.Tensor(data(2))
    assert same(differentiated(x, y=y), differentiated(x, y))


def test_two_cells_have_parameters_of_one_name() -> None:
    first, second = (bridge.cell(torch.nn.Linear(4, 4)) for _ in range(2))

    def loss(x: ms.Tensor) -> ms.Tensor:
        return aten.sum(second(first(x)))

    x = ms.Tensor(data(2, 4))
    found = bridge.value_and_grad(loss, None, first.get_parameters())(x)
    assert same(found, ms.value_and_grad(loss, None, first.trainable_params())(x))


def test_weights_are_what_mindspore_has_now() -> None:
    x, y = ms.Tensor(data(3, 4)), ms.Tensor(data(2))
    differentiated = bridge.value_and_grad(two_results, None, WEIGHT)
    (first, _), _ = differentiated(x, y)
    WEIGHT.set_data(WEIGHT * 2)
    (second, _), _ = differentiated(x, y)
    np.testing.assert_array_equal(second.asnumpy(), first.asnumpy() * 2)


def test_weights_are_what_the_module_has_now() -> None:
    own: Any = module().eval()
    net, (x, labels) = bridge.cell(own), batch()

    def loss(x, labels):
        return F.cross_entropy(net(x), labels)

    ways = [make(loss, None, net.trainable_params()) for make in (bridge.value_and_grad, ms.value_and_grad)]
    ways[0](x, labels)
    own.load_state_dict({name: tensor * 2 for name, tensor in own.state_dict().items()}, assign=True)
    own[4].weight = torch.nn.Parameter(own[4].weight.detach() / 4)
    found, expected = (way(x, labels) for way in ways)
    assert same(found, expected) and all(gradient.asnumpy().any() for gradient in found[1])


def test_an_operator_of_mindspores_is_refused_with_its_line(mode: Mode) -> None:
    def calls_mindspore(x, y):
        return ops.softmax(aten.add(x, y), -1).sum()

    x = ms.Tensor(data(3, 4))
    with pytest.raises(RuntimeError, match=r"bridge\.value_and_grad takes the bridge's(?s:.*)return ops\.softmax"):
        mode(bridge.value_and_grad(calls_mindspore))(x, x)


def test_its_gradient_is_refused(mode: Mode) -> None:
    x, y = ms.Tensor(data(3, 4)), ms.Tensor(data(2))
    differentiated = bridge.value_and_grad(two_results)

    def twice(x):
        return ms.grad(lambda x: differentiated(x, y)[1])(x)

    with pytest.raises(RuntimeError, match=r"two_results: the gradient of what bridge\.value_and_grad gives is not"):
        mode(twice)(x)
    assert same(differentiated(x, y), ms.value_and_grad(two_results)(x, y))


class Folds(torch.nn.Module):
    """A product that PyTorch computes by another kernel if its first factor requires a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, 8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def test_an_argument_requires_no_gradient_that_is_not_asked_for(mode: Mode) -> None:
    torch.manual_seed(0)
    folds = Folds().to(torch_device())
    expected = folds(on_device(data(12, 8)))
    cell = bridge.cell(folds)
    differentiate = bridge.value_and_grad(lambda x: cell(x), None, cell.trainable_params())

    def step(x):
        return differentiate(x)

    value, _ = mode(step)(ms.Tensor(data(12, 8)))
    assert np.array_equal(value.asnumpy(), expected.detach().cpu().numpy())


@pytest.mark.parametrize("first", [(2.0, 3.0), (2.0,)])
def test_all_tensors_of_the_first_result_are_differentiated(first: tuple[float, ...], mode: Mode) -> None:
    def function(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return tuple([aten.mul(x, factor) for factor in first]), aten.mul(x, 5.0)

    x = ms.Tensor(data(3))
    expected = ms.value_and_grad(function, 0, has_aux=True)(x)
    assert same(mode(bridge.value_and_grad(function, 0, has_aux=True))(x), expected)


def test_a_first_result_without_tensors_is_refused() -> None:
    with pytest.raises(TypeError, match=r"the first is differentiated, which is no Tensor here, but of type float"):
        bridge.value_and_grad(lambda x: (1.0, aten.mul(x, 5.0)), 0, has_aux=True)(ms.Tensor(data(3)))


def test_a_single_result_with_aux_is_refused() -> None:
    with pytest.raises(TypeError, match="this one gives one result, of type Tensor"):
        bridge.value_and_grad(lambda x: aten.mul(x, 5.0), 0, has_aux=True)(ms.Tensor(data(3)))


@pytest.mark.parametrize("is_also_dense", [False, True])
def test_sparse_gradients_are_dense(is_also_dense: bool) -> None:
    class Looks(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(5, 3, sparse=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = self.table(x).sum()
            return found + self.table.weight.sin().sum() if is_also_dense else found

    module = Looks()
    cell: Any = bridge.cell(module)
    reference = copy.deepcopy(module).to(torch_device())
    indices = np.array([0, 2, 2])
    reference(on_device(indices)).backward()
    expected = reference.table.weight.grad
    assert expected is not None
    for differentiate in (ms.value_and_grad, bridge.value_and_grad):
        found = differentiate(cell, None, cell.trainable_params())(ms.Tensor(indices))[1][0]
        np.testing.assert_array_equal(found.asnumpy(), expected.to_dense().cpu().numpy())


def test_what_is_wrong_is_said() -> None:
    x = ms.Tensor(data(3, 4))
    with pytest.raises(TypeError, match="takes a Cell or a function, not int"):
        bridge.value_and_grad(3)  # type: ignore[arg-type]
    for make in (bridge.value_and_grad, bridge.fuse):
        with pytest.raises(TypeError, match=r"bridge\.cell makes a Cell of PyTorch's module Linear"):
            make(torch.nn.Linear(3, 3))
    with pytest.raises(ValueError, match="cannot both be None"):
        bridge.value_and_grad(two_results, None)
    for weights, words in (
        (bridge.cell(module()), r"a ModuleCell: give net\.trainable_params\(\)"),
        (nn.SequentialCell(nn.Dense(2, 2)), r"a SequentialCell: give net\.trainable_params\(\)"),
        (torch.nn.Linear(3, 3).parameters(), "takes MindSpore's Parameters, as .* not PyTorch's Parameter"),
        (3, "takes a list of Parameters for weights, not a int"),
    ):
        with pytest.raises(TypeError, match=words):
            bridge.value_and_grad(two_results, None, weights)  # type: ignore[arg-type]
    for make_gradient in (ms.value_and_grad, ms.grad):
        with pytest.raises(TypeError, match=r"takes MindSpore's Parameters, as .* not PyTorch's Parameter"):
            make_gradient(two_results, None, list(torch.nn.Linear(3, 3).parameters()))
    with pytest.raises(ValueError, match="grad_position has 2, and there are 2 arguments"):
        bridge.value_and_grad(two_results, 2)(x, x)
    with pytest.raises(TypeError, match="grad_position has 1, and that argument is no Tensor but of type int"):
        bridge.value_and_grad(two_results, 1)(x, 3)
    with pytest.raises(RuntimeError, match=r"this is one of MindSpore's: .*ops\.sin"):
        bridge.value_and_grad(lambda x: ops.sin(x))(x)
    with pytest.raises(TypeError, match="the function gives no Tensor, but a float"):
        bridge.value_and_grad(lambda x: float(aten.sum(x)))(x)
    with pytest.raises(RuntimeError, match="The size of tensor a"):
        bridge.value_and_grad(two_results)(ms.Tensor(data(3, 3)), x)
    assert same(bridge.value_and_grad(two_results)(x, x), ms.value_and_grad(two_results)(x, x))


class Step(nn.Cell):
    def __init__(self, differentiate: Any) -> None:
        super().__init__()
        self.differentiate = differentiate

    def construct(self, x, y):
        return self.differentiate(x, y)


@pytest.fixture
def graph_mode() -> Iterator[None]:
    before = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.set_context(mode=before)


@pytest.mark.usefixtures("graph_mode")
def test_sizes_may_be_unknown_in_a_graph() -> None:
    theirs = ms.value_and_grad(two_results, 0, WEIGHT)
    step = Step(bridge.value_and_grad(two_results, 0, WEIGHT))
    step.set_inputs(ms.Tensor(shape=[None, 4], dtype=ms.float32), ms.Tensor(data(2)))
    for size in (3, 5, 2):
        x, y = ms.Tensor(data(size, 4)), ms.Tensor(data(2))
        assert same(step(x, y), theirs(x, y))


class Checkpointed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 4)

    def part(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(self.line(x).tanh(), 0.5)

    def forward(self, x: torch.Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint(self.part, self.line(x), use_reentrant=True).pow(2).mean()  # type: ignore[no-untyped-call]


def test_checkpoints_of_the_older_kind(mode: Mode) -> None:
    module = Checkpointed()
    reference = copy.deepcopy(module).to(torch_device())
    net, x = bridge.cell(module), data(3, 4)
    torch.manual_seed(2)
    value, gradients = mode(bridge.value_and_grad(net, None, net.trainable_params()))(ms.Tensor(x))
    torch.manual_seed(2)
    expected = reference(torch.from_numpy(x).to(torch_device()).requires_grad_())
    expected.backward()
    assert float(value) == float(expected)
    for parameter, own in zip(reference.parameters(), gradients, strict=True):
        assert parameter.grad is not None
        assert np.array_equal(own.asnumpy(), parameter.grad.cpu().numpy())


def test_a_cell_shows_its_module() -> None:
    assert repr(bridge.cell(torch.nn.Linear(2, 3))).startswith("ModuleCell(Linear(in_features=2, out_features=3")


def helper(net, x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return F.cross_entropy(net(x), y)


class Trainer:
    """Its loss is a method, and its net, its optimizer and its program are attributes."""

    def __init__(self, net: nn.Cell) -> None:
        self.net = net
        self.criterion = tnn.CrossEntropyLoss()
        self.optimizer = optim.SGD(net.trainable_params(), 0.1, momentum=0.9)
        self.calls = 0
        self.differentiate = bridge.value_and_grad(self.loss, None, self.optimizer.parameters)

    @property
    def logits(self) -> Any:
        return self.net

    def loss(self, x: Any, y: Any) -> Any:
        self.calls += 1
        return self.measured(self.logits(x), y)

    def measured(self, found: Any, y: Any) -> Any:
        return self.criterion(found, y)

    def step(self, x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        loss, gradients = self.differentiate(x, y)
        self.optimizer(gradients)
        return loss

    @ms.jit
    def jitted(self, x, y):  # type: ignore[no-untyped-def]
        loss, gradients = self.differentiate(x, y)
        self.optimizer(gradients)
        return loss


class Derived(Trainer):
    __slots__ = ("more",)

    def measured(self, found: Any, y: Any) -> Any:
        return super().measured(found, y)


@pytest.mark.parametrize("kind", [Trainer, Derived])
@pytest.mark.parametrize("step", ["step", "jitted"])
def test_a_trainers_net_is_an_attribute(step: str, kind: Any) -> None:
    trainer, expected = kind(bridge.cell(module())), module().to(torch_device())
    optimizer = torch.optim.SGD(expected.parameters(), 0.1, momentum=0.9)
    x, y = (torch.tensor(value.asnumpy()).to(torch_device()) for value in batch())
    for _ in range(3):
        bridge.manual_seed(3)
        found = getattr(trainer, step)(*batch())
        torch.manual_seed(3)
        loss = torch.nn.functional.cross_entropy(expected(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert found.asnumpy().tobytes() == loss.detach().cpu().numpy().tobytes()
    for name, other in expected.state_dict().items():
        assert trainer.net.parameters_dict()[name].asnumpy().tobytes() == other.cpu().numpy().tobytes()
    assert trainer.calls >= 1 and (step == "jitted" or trainer.calls == 3)
    # The program keeps nothing of the optimizer's.
    assert len(trainer.differentiate.weights) == len(list(trainer.net.get_parameters()))


class Called:
    def __init__(self, net: nn.Cell) -> None:
        self.net = net

    def __call__(self, x: Any, y: Any) -> Any:
        return F.cross_entropy(self.net(x), y)


class Slots:
    __slots__ = ("net",)

    def __init__(self, net: nn.Cell) -> None:
        self.net = net

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


class Pair(NamedTuple):
    net: nn.Cell
    factor: float


class MethodOfCell(nn.Cell):
    def __init__(self, net: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.net = net

    def loss(self, x: Any, y: Any) -> Any:
        return F.cross_entropy(self.net(x), y)


def of_class(net: nn.Cell) -> Any:
    class Kind:
        model = net

        @classmethod
        def loss(cls, x: Any, y: Any) -> Any:
            return F.cross_entropy(cls.model(x), y)

        @staticmethod
        def static(x: Any, y: Any) -> Any:
            return F.cross_entropy(net(x), y)

    return Kind


def nested(net: nn.Cell) -> Any:
    outer = SimpleNamespace(inner=SimpleNamespace(nets=[Called(net)]))
    outer.inner.outer = outer  # a circle
    return outer


in_global = SimpleNamespace()


def of_file(net: nn.Cell) -> Any:
    in_global.net, file = net, sys.modules[__name__]
    return lambda x, y: file.helper(file.in_global.net, x, y)


def of_global(net: nn.Cell) -> Any:
    in_global.net = net
    return lambda x, y: F.cross_entropy(in_global.net(x), y)


def held(holder: Any, x: Any, y: Any) -> Any:
    return helper(holder.net, x, y)


def default(net: nn.Cell) -> Any:
    one = SimpleNamespace(net=net)

    def loss(x: Any, y: Any, holder: Any = one) -> Any:
        return helper(holder.net, x, y)

    return loss


FORMS: dict[str, Callable[[nn.Cell], Any]] = {
    "attribute of a variable": lambda net: (lambda q: lambda x, y: helper(q.net, x, y))(SimpleNamespace(net=net)),
    "attribute of a global": of_global,
    "attribute of a file": of_file,
    "default": default,
    "nested": lambda net: (lambda q: lambda x, y: q.inner.outer.inner.nets[0](x, y))(nested(net)),
    "slots": lambda net: (lambda q: lambda x, y: helper(q["net"], x, y))(Slots(net)),
    "named tuple": lambda net: (lambda q: lambda x, y: helper(q.net, x, y) * q.factor)(Pair(net, 1.0)),
    "set": lambda net: (lambda q: lambda x, y: sum(helper(one, x, y) for one in q))({net}),
    "getattr": lambda net: (lambda q: lambda x, y: helper(getattr(q, "n" + "et"), x, y))(SimpleNamespace(net=net)),
    "callable": Called,
    "bound method": lambda net: Called(net).__call__,
    "method of a Cell": lambda net: MethodOfCell(net).loss,
    "class method": lambda net: of_class(net).loss,
    "static method": lambda net: of_class(net).static,
    "method of a class": lambda net: (lambda q: lambda x, y: q.loss(x, y) * 0 + q.static(x, y))(of_class(net)),
    "partial": lambda net: functools.partial(helper, net),
    "partial of a method": lambda net: functools.partial(Trainer(net).measured, y=batch()[1]),
    "partial of an object": lambda net: functools.partial(
        lambda q, x, y: helper(q.net, x, y), SimpleNamespace(net=net)
    ),
    "layer made inside": lambda net: lambda x, y: tnn.CrossEntropyLoss()(net(x), y),
    "layer": lambda net: (lambda layer: lambda x, y: layer(net(x), y))(tnn.CrossEntropyLoss()),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_net_may_be_anywhere(form: str, mode: Mode) -> None:
    expected = module().to(torch_device()).eval()
    x, y = (torch.tensor(value.asnumpy()).to(torch_device()) for value in batch())
    net = bridge.cell(module()).set_train(False)
    weights = net.trainable_params()
    loss = FORMS[form](net)
    given = batch()
    if form == "partial of a method":
        logits = bridge.fuse(net)(given[0])
        found, gradient = mode(bridge.value_and_grad(loss))(logits)
        leaf = expected(x).detach().requires_grad_()
        value = torch.nn.functional.cross_entropy(leaf, y)
        value.backward()
        assert found.asnumpy().tobytes() == value.detach().cpu().numpy().tobytes()
        assert leaf.grad is not None and gradient.asnumpy().tobytes() == leaf.grad.cpu().numpy().tobytes()
        return
    value = torch.nn.functional.cross_entropy(expected(x), y)
    value.backward()
    differentiate = bridge.value_and_grad(loss, None, weights)
    fused = bridge.fuse(loss)

    def step(x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x, y), fused(x, y)

    (found, gradients), again = mode(step)(*given)
    for one in (found, again):
        assert one.asnumpy().tobytes() == value.detach().cpu().numpy().tobytes()
    for own, parameter in zip(gradients, expected.parameters(), strict=True):
        assert parameter.grad is not None
        assert own.asnumpy().tobytes() == parameter.grad.cpu().numpy().tobytes()


def test_a_program_that_cannot_see_a_net_names_it() -> None:
    net = bridge.cell(torch.nn.Linear(4, 3))
    hidden = functools.lru_cache(lambda: net)
    with pytest.raises(RuntimeError, match=r"has a Cell, Linear, from where they do not look.* a variable"):
        bridge.value_and_grad(lambda x, y: F.cross_entropy(hidden()(x), y))(*batch())

    class Own(tnn.Module):
        def construct(self, x: Any) -> Any:
            return x

    for make in (Own, lambda: tnn.Sequential(tnn.Linear(4, 3)), type("Line", (tnn.Linear,), {})):
        with pytest.raises(RuntimeError, match=r"made inside bridge\.fuse or bridge\.value_and_grad: make it before"):
            bridge.fuse(lambda x, make=make: make()(x))(batch()[0])


def test_jit_compiles_what_it_gives() -> None:
    runs = Mock()  # which nobody looks into

    class Counted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> Any:
            runs()
            return self.linear(x)

    net = bridge.cell(Counted())
    differentiate = bridge.value_and_grad(net, None, net.trainable_params())
    step = ms.jit(differentiate)
    step(ms.Tensor(data(5, 4)))
    captured = runs.call_count
    found = [step(ms.Tensor(data(5, 4, seed=seed))) for seed in range(3)]
    assert runs.call_count == captured
    for seed, (value, gradients) in enumerate(found):
        expected = differentiate(ms.Tensor(data(5, 4, seed=seed)))
        assert same(value, expected[0]) and same(list(gradients), list(expected[1]))
