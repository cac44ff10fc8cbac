"""A graph whose run failed works in the next call. MindSpore's own would fail from then on."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge import aten
from bridge.op import devices
from shared import data

TABLE = data(5, 3)
RIGHT, WRONG = [4, 0], [5, 0]
WORDS = "index out of range|out of bounds|must be in|indices"


class Looks(ms.nn.Cell):
    """Finds rows of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = ms.Parameter(ms.Tensor(TABLE), name="table")

    def construct(self, rows: ms.Tensor) -> ms.Tensor:
        return aten.mul(aten.embedding(self.table, rows), 2)


def by_operators() -> Callable[..., Any]:
    return ms.jit(Looks())  # type: ignore[no-any-return]


def by_module() -> Callable[..., Any]:
    net = bridge.cell(torch.nn.Embedding(5, 3, _weight=torch.from_numpy(TABLE * 2)))

    def call(rows):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(rows)

    return ms.jit(call)  # type: ignore[no-any-return]


def by_mindspore() -> Callable[..., Any]:
    table = ms.Tensor(TABLE)

    def rows_of(rows):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        index = ms.ops.broadcast_to(rows.reshape(-1, 1), (-1, 3))
        return aten.mul(ms.ops.gather_d(table, 0, index), 2)

    return ms.jit(rows_of)  # type: ignore[no-any-return]


def checked(call: Callable[..., Any]) -> None:
    for rows in (RIGHT, WRONG, RIGHT, RIGHT, WRONG, WRONG, RIGHT):
        if rows is RIGHT:
            assert np.array_equal(call(ms.Tensor(rows)).asnumpy(), TABLE[rows] * 2)
            continue
        with pytest.raises((RuntimeError, IndexError, ValueError), match=WORDS):
            call(ms.Tensor(rows)).asnumpy()


# On a GPU an index that is out of range ends the process, in PyTorch too.
@pytest.mark.skipif(devices.target() == "GPU", reason="the kernels check indices on a CPU")
@pytest.mark.parametrize("make", [by_operators, by_module, by_mindspore])
def test_functions_work_after_an_error(make: Callable[[], Callable[..., Any]]) -> None:
    checked(make())


@pytest.mark.skipif(devices.target() == "GPU", reason="the kernels check indices on a CPU")
def test_the_words_are_the_operators() -> None:
    with pytest.raises(IndexError, match=r"^aten\.embedding: index out of range in self\n\nIn file "):
        by_operators()(ms.Tensor(WRONG))


@pytest.mark.skipif(devices.target() == "GPU", reason="the kernels check indices on a CPU")
def test_cells_work_after_an_error(graph_mode: None) -> None:
    checked(Looks())


@pytest.mark.skipif(devices.target() == "GPU", reason="the kernels check indices on a CPU")
def test_training_goes_on_after_an_error() -> None:
    net, before = Looks(), TABLE.copy()
    optimizer = bridge.optim.SGD(net.trainable_params(), 0.1)

    def loss_of(rows):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.sum(net(rows))

    differentiate = ms.value_and_grad(loss_of, None, optimizer.parameters)

    @ms.jit
    def step(rows):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        loss, gradients = differentiate(rows)
        optimizer(gradients)
        return loss

    for rows in (RIGHT, WRONG, RIGHT):
        if rows is WRONG:
            with pytest.raises((RuntimeError, IndexError), match=WORDS):
                step(ms.Tensor(rows)).asnumpy()
        else:
            step(ms.Tensor(rows)).asnumpy()
            before[rows] -= np.float32(0.1) * 2
        np.testing.assert_array_equal(net.table.asnumpy(), before)


# The process's first call of the bridge is the one that fails.
FIRST = """
import sys

import mindspore as ms
import numpy as np
from bridge import aten

TABLE = ms.Tensor(np.ones((5, 3), np.float32))


@ms.jit
def rows_of(rows):
    return aten.embedding(TABLE, rows)


class Net(ms.nn.Cell):
    def construct(self, rows):
        return aten.embedding(TABLE, rows)


if sys.argv[1] == "Cell":
    ms.set_context(mode=ms.GRAPH_MODE)
    rows_of = Net()
for rows in ([5, 0], [4, 0], [4, 5], [0, 0]):
    try:
        print(rows_of(ms.Tensor(rows)).asnumpy().sum())
    except Exception as error:
        print(type(error).__name__, *str(error).split())
"""


@pytest.mark.skipif(devices.target() == "GPU", reason="the kernels check indices on a CPU")
@pytest.mark.parametrize("kind", ["function", "Cell"])
def test_the_first_graph_of_a_process_works_after_an_error(kind: str, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "first.py"
    script.write_text(FIRST)
    found = subprocess.run([sys.executable, script, kind], capture_output=True, text=True, check=True)
    first, second, third, fourth = filter(None, found.stdout.splitlines())
    assert first == third and second == fourth == "6.0"
    assert first.startswith(f"IndexError aten.embedding: index out of range in self In file {script}:")
    assert " return aten.embedding(TABLE, rows) " in first
