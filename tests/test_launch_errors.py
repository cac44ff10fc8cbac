"""Errors that the data of a call brings: PyTorch's class and words, in both modes, and in a graph the user's line."""

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
import bridge.torch.nn.functional as F
from bridge import aten
from bridge.op import devices
from shared import class_at_sync

on_the_host = pytest.mark.skipif(devices.target() == "GPU", reason="the kernels check indices on a CPU")


class TooLarge(Exception):
    """One of a user's."""


class TakesTwo(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} of {second}")


def tensor(*values: float) -> ms.Tensor:
    return ms.Tensor(np.array(values, np.float32))


def indices(*values: int) -> ms.Tensor:
    return ms.Tensor(np.array(values, np.int64))


def select(x, index):
    positive = aten.relu(x)
    return aten.index_select(positive, 0, index)


def select_beside_mindspores(x, index):
    return aten.index_select(ms.ops.tanh(x), 0, index) + ms.ops.ones_like(x[:1])


def select_twice(x, index):
    first = aten.index_select(x, 0, index)
    return first + aten.index_select(x * 2, 0, index)


def choose(x, index):
    if index.sum() > 3:
        return aten.index_select(x, 0, index)
    return aten.relu(x)


def layer_of(x, index):
    return select(x, index).sum()


class Net(ms.nn.Cell):
    def construct(self, x, index):
        return select(x, index)


@on_the_host
@pytest.mark.parametrize("recorded", [False, True])
def test_a_single_calls_error_has_its_class(recorded: bool) -> None:
    def call(x: ms.Tensor) -> ms.Tensor:
        return aten.index_select(x, 0, indices(0, 3))

    run = ms.grad(call) if recorded else call
    for _ in range(2):  # the second one is known
        with pytest.raises(IndexError, match=r"^aten.index_select: index out of range in self$"):
            run(tensor(1, 2, 3))
    assert aten.index_select(tensor(1, 2, 3), 0, indices(2)).asnumpy() == 3


def test_classes_of_pytorchs_own() -> None:
    with pytest.raises(class_at_sync(torch.linalg.LinAlgError), match="not positive-definite"):
        aten.linalg_cholesky(ms.Tensor(-np.eye(2, dtype=np.float32)))
        ms.runtime.synchronize()


@on_the_host
@pytest.mark.parametrize(
    ("function", "line"),
    [
        (select, "return aten.index_select(positive, 0, index)"),
        (select_beside_mindspores, "return aten.index_select(ms.ops.tanh(x), 0, index)"),
        (choose, "return aten.index_select(x, 0, index)"),
        (layer_of, "return aten.index_select(positive, 0, index)"),
        (Net, "return aten.index_select(positive, 0, index)"),
    ],
)
def test_a_graphs_error_has_its_class_and_the_line(function, line: str, graph_mode: None) -> None:
    run = function() if function is Net else ms.jit(function)
    x = tensor(1, 2, 3)
    for _ in range(2):
        with pytest.raises(IndexError) as error:
            run(x, indices(0, 3, 1))
        assert str(error.value).startswith("aten.index_select: index out of range in self\n\nIn file ")
        assert f"{__file__}:" in str(error.value) and line in str(error.value)
        run(x, indices(0, 2, 2))


@on_the_host
def test_all_calls_that_may_have_failed_are_named() -> None:
    with pytest.raises(IndexError, match=r"aten.index_select\(.*\n.*\n\nor another call of aten.index_select$"):
        ms.jit(select_twice)(tensor(1, 2, 3), indices(3))


@on_the_host
def test_the_gradient_of_a_graph() -> None:
    @ms.jit
    def loss(x, index):
        return layer_of(x, index)

    with pytest.raises(IndexError, match=r"index out of range in self\n\nIn file "):
        ms.value_and_grad(loss)(tensor(1, 2, 3), indices(4))
    value, gradient = ms.value_and_grad(loss)(tensor(1, 2, 3), indices(2))
    assert value == 3 and gradient.asnumpy().tolist() == [0, 0, 1]


class Embedded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(5, 4)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.table(index)


class Labelled(torch.nn.Module):
    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(x, label)


@on_the_host
def test_a_modules_error_has_its_class(graph_mode: None) -> None:
    with pytest.raises(IndexError, match=r"index out of range in self\n\nIn file .*in forward\n    return self.table"):
        bridge.cell(Embedded())(indices(5))
    with pytest.raises(IndexError, match=r"Target 7 is out of bounds"):
        bridge.cell(Labelled())(ms.Tensor(np.ones((1, 3), np.float32)), indices(7))


class OneHot(torch.nn.Module):
    """Args: classes: how many; -1 for as many as the data has."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(index, self.classes)


class Compared(torch.nn.Module):
    """The calls that PyTorch makes of one_hot where there is no data, which look at no class."""

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return (index.unsqueeze(-1) == torch.arange(4)).to(torch.int64)


@on_the_host
def test_one_hot_of_classes_that_are_out_of_range(graph_mode: None) -> None:
    """Without data PyTorch looks at none of them."""
    for classes, index, words in ((4, 5, "smaller than num_classes"), (4, -1, "non-neg"), (-1, -1, "non-neg")):
        net = bridge.cell(OneHot(classes))
        np.testing.assert_array_equal(net(indices(0, 2)).asnumpy(), np.eye(4 if classes == 4 else 3)[[0, 2]])
        with pytest.raises(RuntimeError, match=rf"Class values must be {words}.*\n\nIn file .*in forward\n    return"):
            net(indices(0, index))
    np.testing.assert_array_equal(bridge.cell(Compared())(indices(0, 5)).asnumpy(), [[1, 0, 0, 0], [0] * 4])


class Summed(torch.nn.Module):
    """Data decides how many rows there are."""

    def forward(self, x: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
        return torch.zeros(int(group.max()) + 1, 4, device=x.device).index_add(0, group, x)


def test_an_error_of_a_shape_that_data_decides_has_its_class() -> None:
    net = bridge.cell(Summed())

    @ms.jit
    def loss(x, group, label):
        return F.cross_entropy(net(x, group), label)

    x = ms.Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    loss(x, indices(0, 1, 1), indices(0, 3))
    with pytest.raises(class_at_sync(ValueError), match=r"Expected input batch_size \(4\) to match target"):
        loss(x, indices(3, 1, 1), indices(0, 3)).asnumpy()


class Checked(torch.nn.Module):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.kind, self.given = type(error), error.args

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.max() > 5:
            if self.kind is KeyError:
                raise KeyError("too large")
            if self.kind is TooLarge:
                raise TooLarge("too large")
            if self.kind is TakesTwo:
                raise TakesTwo(1, 2)
            raise ValueError("too large")
        return x + 1


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KeyError("too large"), KeyError),
        (ValueError("too large"), ValueError),
        (TooLarge("too large"), TooLarge),
        (TakesTwo(1, 2), RuntimeError),  # nothing knows what it takes
    ],
)
def test_a_check_of_a_modules_raises_its_class(error: Exception, raised: type[Exception], graph_mode: None) -> None:
    net = bridge.cell(Checked(error))
    net(tensor(1))
    with pytest.raises(class_at_sync(raised), match=r"was taken to be False") as found:
        net(tensor(6))
        ms.runtime.synchronize()
    assert type(found.value) in class_at_sync(raised)
    assert net(tensor(1)).asnumpy() == 2


class Raising(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no such luck")


class Differentiated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Raising.apply(x * self.weight).sum()


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_an_error_of_a_backward_of_the_users_has_its_class(mode: int) -> None:
    ms.set_context(mode=mode)
    try:
        net = bridge.cell(Differentiated())
        with pytest.raises(ValueError, match=r"^no such luck($|\n\nIn file .*in backward\n)"):
            ms.value_and_grad(net, None, net.trainable_params())(tensor(1, 2, 3))
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


@on_the_host
def test_labels_out_of_range() -> None:
    @ms.jit
    def loss(x, y):
        return F.cross_entropy(x, y)

    with pytest.raises(IndexError, match=r"aten.cross_entropy_loss: Target 7 is out of bounds"):
        loss(ms.Tensor(np.ones((1, 3), np.float32)), indices(7))
