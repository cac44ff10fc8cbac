"""A graph on the CPU all of whose kernels are the bridge's runs without MindSpore's executor, from its second run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge import _mindspore, aten
from shared import data

pytestmark = [
    pytest.mark.usefixtures("own_programs"),
    pytest.mark.skipif(
        not _mindspore._NAMES_ARE_KNOWN, reason="MindSpore 2.8 and 2.9 find and run their graphs themselves"
    ),
]

WIDTH = 160  # whose square is large enough for MindSpore's pool
ROWS = 3


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.GELU(), nn.Linear(WIDTH, 2))


def runs(call: Callable[..., Any]) -> list[bool]:
    """Of each graph of a compiled function that is known: whether MindSpore need not run it."""
    known = _mindspore._repeated._functions[id(call.__wrapped__)].graphs  # type: ignore[attr-defined]
    return [one.run is not None for one in known.values()]


def numpy_of(results: Any) -> Any:
    return [numpy_of(one) for one in results] if isinstance(results, tuple) else results.asnumpy()


def check_like_pynative(function: Callable[..., Any], *arrays: np.ndarray, is_own: bool) -> None:
    """What a compiled function gives in three calls, and in PyNative mode."""
    call = ms.jit(function)
    for _ in range(3):
        arguments = [ms.Tensor(array) for array in arrays]
        found, expected = numpy_of(call(*arguments)), numpy_of(function(*arguments))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    assert runs(call) == [is_own]


@pytest.mark.parametrize("in_one", [True, False])
def test_training_has_pytorchs_bits(in_one: bool) -> None:
    module, x = network(), data(ROWS, WIDTH)
    net = bridge.cell(copy.deepcopy(module)).set_train(True)
    optimizer = bridge.optim.AdamW(net.trainable_params(), 0.1)
    value_and_grad = bridge.value_and_grad if in_one else ms.value_and_grad
    differentiate = value_and_grad(net, None, optimizer.parameters)

    @ms.jit
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        value, gradients = differentiate(x)
        return value, optimizer(gradients)

    own = torch.optim.AdamW(module.parameters(), 0.1)
    values = []
    for _ in range(4):
        own.zero_grad()
        expected = module(torch.from_numpy(x))
        expected.backward(torch.ones_like(expected))
        own.step()
        value, is_done = step(ms.Tensor(x))
        assert is_done is True
        values.append((value, expected.detach().numpy()))
    for value, array in values:  # later steps leave it alone
        np.testing.assert_array_equal(value.asnumpy(), array)
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(net.state_dict()[name].numpy(), tensor.numpy(), err_msg=name)
    assert runs(step) == [True]


def test_results_are_what_mindspore_gives() -> None:
    net = bridge.cell(nn.Linear(2, 2))

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        y = net(x)
        return (y, (aten.sum(y), None, 3)), "text", True

    compiled, x = ms.jit(call), ms.Tensor(data(2, 2))
    first, second = compiled(x), compiled(x)
    assert runs(compiled) == [True]
    assert (second[0][1][1:], second[1:]) == (first[0][1][1:], first[1:]) == ((None, 3), ("text", True))
    for one, other in ((first[0][0], second[0][0]), (first[0][1][0], second[0][1][0])):
        assert (type(other), other.shape, other.dtype) == (type(one), one.shape, one.dtype)
        np.testing.assert_array_equal(other.asnumpy(), one.asnumpy())


def test_what_mindspore_has_to_run() -> None:
    net = bridge.cell(nn.Linear(WIDTH, WIDTH))

    def with_its_operator(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return (ms.ops.relu(net(x)),)

    def with_an_argument(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x), x

    def with_one_result_twice(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        y = net(x)
        return y, y

    for function in (with_its_operator, with_an_argument, with_one_result_twice):
        check_like_pynative(function, data(ROWS, WIDTH), is_own=False)


def test_results_go_on_to_other_calls() -> None:
    net = bridge.cell(nn.Linear(WIDTH, WIDTH))

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        y = net(x)
        return net(y), aten.add(net(y), y), y

    check_like_pynative(call, data(WIDTH, WIDTH), is_own=True)


def test_a_parameter_is_read_where_the_code_reads_it() -> None:
    module, x = network(), data(ROWS, WIDTH)
    net = bridge.cell(copy.deepcopy(module))  # it writes to its buffers in each call
    optimizer = bridge.optim.SGD(net.trainable_params(), 0.1)
    differentiate = bridge.value_and_grad(net, None, optimizer.parameters)

    @ms.jit
    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        before = net(x)
        _, gradients = differentiate(x)
        optimizer(gradients)
        return before, net(x)

    own = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(3):
        own.zero_grad()
        expected = [module(torch.from_numpy(x)).detach()]
        module(torch.from_numpy(x)).sum().backward()
        own.step()
        expected.append(module(torch.from_numpy(x)).detach())
        for one, other in zip(step(ms.Tensor(x)), expected, strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.numpy())
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(net.state_dict()[name].numpy(), tensor.numpy(), err_msg=name)


@pytest.mark.parametrize("view", ["a part", "transposed", "one that was computed"])
def test_arguments_that_lie_otherwise(view: str) -> None:
    net = bridge.cell(nn.Linear(WIDTH, 2))

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    array = data(2 * WIDTH, WIDTH)
    views: dict[str, tuple[Callable[[ms.Tensor], Any], np.ndarray]] = {
        "a part": (lambda x: x[WIDTH:], array[WIDTH:]),
        "transposed": (lambda x: x[:WIDTH].T, array[:WIDTH].T),
        "one that was computed": (lambda x: x[:WIDTH] * 2, array[:WIDTH] * 2),
    }
    take, taken = views[view]
    call(ms.Tensor(array[:WIDTH]))
    for _ in range(2):
        found = call(take(ms.Tensor(array)))
        np.testing.assert_array_equal(found.asnumpy(), net(ms.Tensor(np.ascontiguousarray(taken))).asnumpy())
    assert runs(call) == [True]


def test_other_data_for_a_parameter_is_followed() -> None:
    module = nn.Linear(2, 2)
    net, x = bridge.cell(module), ms.Tensor(data(2, 2))

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    def check() -> None:
        np.testing.assert_array_equal(call(x).asnumpy(), net(x).asnumpy())

    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: net.trainable_params()[0].set_data(ms.Tensor(data(2, 2, seed=1))),
        lambda: ms.load_param_into_net(net, {"weight": ms.Parameter(ms.Tensor(data(2, 2, seed=2)), name="weight")}),
        lambda: module.weight.data.copy_(torch.from_numpy(data(2, 2, seed=3))),
        lambda: setattr(module.weight, "data", torch.from_numpy(data(2, 2, seed=4))),
        lambda: net.load_state_dict(nn.Linear(2, 2).state_dict()),
    ]
    for change in changes:
        change()
        for _ in range(2):
            check()
    assert set(runs(call)) == {True}


def test_an_error_leaves_the_graph_as_it_was() -> None:
    net = bridge.cell(nn.Embedding(4, WIDTH * WIDTH))

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.sum(net(x))

    right, wrong = ms.Tensor(np.arange(4)), ms.Tensor(np.arange(4) + 1)
    expected = call(right).asnumpy()
    with pytest.raises(IndexError) as in_pynative:
        net(wrong)
    for x in (right, wrong, right, wrong, wrong, right):
        if x is right:
            np.testing.assert_array_equal(call(x).asnumpy(), expected)
        else:
            with pytest.raises(IndexError, match=str(in_pynative.value)):
                call(x)
    assert runs(call) == [True]


def test_tensors_without_elements() -> None:
    net = bridge.cell(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.5))).set_train(False)

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return (net(x),)  # its gradient would take some

    check_like_pynative(call, data(ROWS, WIDTH), is_own=True)


def test_a_cell_in_graph_mode() -> None:
    module = network().eval()
    net = bridge.cell(module)
    ms.set_context(mode=ms.GRAPH_MODE)

    def check(array: np.ndarray) -> None:
        with torch.no_grad():
            expected = module(torch.from_numpy(array)).numpy()
        np.testing.assert_array_equal(net(ms.Tensor(array)).asnumpy(), expected)

    def are_own() -> list[bool]:
        return [run is not None for run in _mindspore._cells[net].runs.values()]

    for rows in (ROWS, 2 * ROWS, ROWS, ROWS):
        check(data(rows, WIDTH, seed=rows))
    assert are_own() == [True, True]
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        net(ms.Tensor(data(ROWS, WIDTH + 1)))
    check(data(ROWS, WIDTH))
    net.trainable_params()[0].set_data(ms.Tensor(data(WIDTH, WIDTH, seed=5)))
    check(data(ROWS, WIDTH))
    net.set_train(True)
    module.train()
    for _ in range(3):
        check(data(ROWS, WIDTH))
    assert set(are_own()) == {True}
