"""Several threads call operators at once: results keep PyTorch's bits, also while the caches are being filled."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge import aten

THREADS = 4
ROUNDS = 30

DATA = np.random.default_rng(0).standard_normal((THREADS, 16, 16)).astype(np.float32)

CALLS: list[Callable[[Any, Any], Any]] = [
    lambda op, x: op.leaky_relu(x, 0.1),
    lambda op, x: op.add(x, x, alpha=3),
    lambda op, x: op.mm(x, x),
    lambda op, x: op.softmax(x, 1),
    lambda op, x: op.sort(x, 0)[1],
    lambda op, x: op.logsumexp(x, [0]),
    lambda op, x: op.cat([x, x], 1),
    lambda op, x: op.native_layer_norm(x, [16], None, None, 1e-5)[0],
    lambda op, x: op.nonzero(x),
    lambda op, x: op.unbind(x)[3],
    lambda op, x: op.masked_select(x, op.gt(x, 0.5)),
    lambda op, x: op.cumsum(op.relu(x), 0),
]


def run_at_once(work: Callable[[int], None]) -> None:
    """Call `work` with each thread's number, all starting together.

    Raises:
        BaseException: what any of them raised.
    """
    start = threading.Barrier(THREADS)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def expected(number: int) -> list[bytes]:
    return [call(torch.ops.aten, torch.tensor(DATA[number])).numpy().tobytes() for call in CALLS]


def test_threads_get_the_bits_of_torch() -> None:
    references = [expected(number) for number in range(THREADS)]

    def work(number: int) -> None:
        x = ms.Tensor(DATA[number])
        for turn in range(ROUNDS):
            results = [call(aten, x) for call in CALLS[turn % 2 :: 2]]  # several calls under way before one is read
            for result, reference in zip(results, references[number][turn % 2 :: 2], strict=True):
                assert result.asnumpy().tobytes() == reference

    run_at_once(work)


def test_threads_that_fill_the_caches_at_once_get_the_right_primitives() -> None:
    def work(number: int) -> None:
        x = ms.Tensor(DATA[number])
        for turn in range(ROUNDS):
            slope = 0.001 * turn  # new to every thread in each turn: all of them make the same primitive
            size = turn % 15 + 1
            row = ms.Tensor(DATA[number, :size])
            results = aten.leaky_relu(x, slope), aten.mul(row, slope + number), aten.sum(row, [0])
            reference = torch.tensor(DATA[number])
            wanted = (
                torch.ops.aten.leaky_relu(reference, slope),
                reference[:size] * (slope + number),
                reference[:size].sum(0),
            )
            for result, want in zip(results, wanted, strict=True):
                assert result.asnumpy().tobytes() == want.numpy().tobytes()

    run_at_once(work)


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_threads_compile_and_call_graphs_at_once(mode: int) -> None:
    """Each calls each network, with a size of its own: MindSpore's own graphs fail there, or give others' numbers."""
    ms.set_context(mode=mode)
    modules = [
        torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, n + 1)) for n in range(THREADS)
    ]
    nets = [bridge.cell(module) for module in modules]
    graphs = nets if mode == ms.GRAPH_MODE else [ms.jit(net) for net in nets]

    def work(number: int) -> None:
        x = DATA[number, : number + 2]
        for turn in range(ROUNDS):
            which = (number + turn) % THREADS
            with torch.no_grad():
                wanted = modules[which](torch.from_numpy(x)).numpy()
            assert graphs[which](ms.Tensor(x)).asnumpy().tobytes() == wanted.tobytes()

    run_at_once(work)


def test_a_graph_called_by_a_module_waits_for_no_other_threads_graph() -> None:
    """One thread compiles while another one is in a module whose hook calls a graph."""
    x, under_way = ms.Tensor(DATA[0]), threading.Event()
    nets = [bridge.cell(torch.nn.Linear(16, 16)) for _ in range(3)]
    inner, compiled_later = (ms.jit(net) for net in nets[:2])
    inner(x)

    def hook(*_: Any) -> None:
        under_way.set()
        time.sleep(0.2)  # the other thread compiles by now, if it need not wait
        inner(x)

    nets[2].module.register_forward_hook(hook)

    def later() -> None:
        under_way.wait()
        compiled_later(x)

    threads = [threading.Thread(target=call, daemon=True) for call in (later, lambda: nets[2](x))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_error_in_one_thread_leaves_the_others_alone() -> None:
    def work(number: int) -> None:
        x = ms.Tensor(DATA[number])
        wanted = torch.ops.aten.leaky_relu(torch.tensor(DATA[number]), 0.1).numpy().tobytes()
        for _ in range(ROUNDS):
            if number == 0:
                try:
                    aten.mm(x, None)
                except TypeError as error:
                    assert "mat2" in str(error)
                else:
                    raise AssertionError("no error")
            else:
                assert aten.leaky_relu(x, 0.1).asnumpy().tobytes() == wanted

    run_at_once(work)


def assert_alone(function: Callable[[], None]) -> None:
    """Call a function of this file in a process of its own."""
    folder = str(pathlib.Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {folder!r}); import test_threads; test_threads.{function.__name__}()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=pathlib.Path(bridge.__file__).parent.parent,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def first_calls_race() -> None:
    """The first calls of a process: schemas, tables, operators and primitives are made by all threads at once."""
    references = [expected(number) for number in range(THREADS)]

    def work(number: int) -> None:
        x = ms.Tensor(DATA[number])
        for call, reference in zip(CALLS, references[number], strict=True):
            assert call(aten, x).asnumpy().tobytes() == reference

    run_at_once(work)


def test_threads_may_make_the_first_calls_of_a_process() -> None:
    assert_alone(first_calls_race)


@ms.jit
def relu(x: ms.Tensor) -> ms.Tensor:
    return aten.relu(x)


@ms.jit
def layer_norm(x: ms.Tensor) -> ms.Tensor:
    return aten.layer_norm(x, [16])


def graphs_leave_no_threads() -> None:
    """With more threads than cores, OpenMP would put them to sleep after each parallel loop (ms_ext/cpu.cpp)."""
    torch.set_num_threads(2)
    torch.layer_norm(torch.tensor(DATA), [16])  # PyTorch's kernel is such a loop: its threads are there from here on
    for _ in range(3):
        relu(ms.Tensor(DATA)).asnumpy()  # as are MindSpore's
    before = set(os.listdir("/proc/self/task"))
    for _ in range(3):
        layer_norm(ms.Tensor(DATA)).asnumpy()
    assert set(os.listdir("/proc/self/task")) <= before


def test_graphs_leave_openmp_no_threads_but_the_callers() -> None:
    assert_alone(graphs_leave_no_threads)


class Sorts(torch.nn.Module):
    """Its number of results is known when the graph runs, and PyTorch has no gradient for one of them."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.sort(x)[0], x.unique()


def a_backward_fails_while_a_graph_runs() -> None:
    cell = bridge.cell(Sorts())

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return cell(x)

    call(ms.Tensor(DATA))


@pytest.mark.usefixtures("own_programs")
def test_a_backward_that_failed_does_not_keep_the_process() -> None:
    assert_alone(a_backward_fails_while_a_graph_runs)


def first_steps_have_as_many_threads() -> None:
    """The first step is on a thread of MindSpore's, and oneDNN adds in another order with another number of threads."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, images = torch.nn.Conv1d(1, 4, 3), torch.randn(5, 1, 40)
    module(images).sum().backward()
    expected = [parameter.grad.numpy() for parameter in module.parameters() if parameter.grad is not None]
    cell = bridge.cell(module)

    def loss(x: ms.Tensor) -> ms.Tensor:
        return ms.ops.sum(cell(x))

    _, gradients = ms.jit(ms.value_and_grad(loss, None, cell.trainable_params()))(ms.Tensor(images.numpy()))
    assert all(map(np.array_equal, [gradient.asnumpy() for gradient in gradients], expected))


def test_first_steps_of_graphs_have_as_many_threads_as_pytorch() -> None:
    assert_alone(first_steps_have_as_many_threads)


class Products(ms.nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.differentiate = bridge.value_and_grad(lambda x, y: (x * y).sum(), 0)

    @ms.jit
    def construct(self, x, y):
        return self.differentiate(x, y)


def sizes_are_inferred_in_a_step() -> None:
    """Python does that on a thread of MindSpore's, and calls torch.autograd.grad, which leaves an object of Python's
    with its thread. MindSpore waits for the end of the thread while it holds the GIL."""
    step = Products()
    step.set_inputs(ms.Tensor(shape=[None, 16], dtype=ms.float32), ms.Tensor(DATA[0, 0]))
    for size in (16, 1):
        step(ms.Tensor(DATA[0, :size]), ms.Tensor(DATA[0, 0]))


def test_a_process_ends_whose_threads_ran_python() -> None:
    assert_alone(sizes_are_inferred_in_a_step)
