"""The short way of a call and MindSpore's primitives: the same results, in the program's order."""

from __future__ import annotations

import os
import pathlib
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import mint, ops

import bridge
from bridge import _mindspore, aten
from bridge.primitive import direct

X = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways that calls take, in order."""
    ways: list[str] = []
    run_primitive, possible = _mindspore.run_primitive, direct.possible

    def by_primitive(primitive: Any, tensors: Any) -> Any:
        ways.append("primitive")
        return run_primitive(primitive, tensors)

    def by_either() -> bool:
        ways.append("direct" if possible() else "other")
        return possible()

    monkeypatch.setattr(_mindspore, "run_primitive", by_primitive)
    monkeypatch.setattr(direct, "possible", by_either)
    return ways


def test_which_way_is_taken(taken: list[str]) -> None:
    x = ms.Tensor(X)
    aten.leaky_relu(x, 0.1)
    assert taken == ["direct"]
    taken.clear()
    ms.grad(lambda x: aten.leaky_relu(x, 0.1))(x)
    assert taken == ["direct"]  # the call, which PyTorch has recorded
    taken.clear()
    ms.grad(ms.grad(lambda x: aten.leaky_relu(x, 0.1)))(x)
    assert taken == ["direct"] * 3  # the call, its gradient, and the gradient of that
    taken.clear()

    @ms.jit
    def compiled(x):
        return aten.leaky_relu(x, 0.1)

    compiled(x)
    assert not taken


# One letter a call: d(irect), p(rimitive), and MindSpore's own r(elu) and s(cale), which other threads take up.
CHAINS = ["dds", "dps", "pds", "drds", "rprds", "dprsdps", "srsdrpsd"]


@pytest.mark.parametrize("chain", CHAINS)
def test_calls_do_not_overtake_each_other(chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    way = ""
    possible = direct.possible
    monkeypatch.setattr(direct, "possible", lambda: way == "d" and possible())
    expected = torch.from_numpy(X)
    for way in chain:
        expected = expected @ expected if way in "dp" else expected.relu() if way == "r" else expected * 0.01
    for _ in range(20):
        y = ms.Tensor(X)
        for way in chain:
            y = aten.mm(y, y) if way in "dp" else ops.relu(y) if way == "r" else mint.mul(y, 0.01)
        np.testing.assert_array_equal(y.asnumpy(), expected.numpy())


def test_a_value_that_is_assigned_is_seen() -> None:
    parameter = ms.Parameter(ms.Tensor(np.zeros((64, 64), np.float32)))
    results = []
    for i in range(50):
        ops.assign(parameter, ms.Tensor(np.full((64, 64), i, np.float32)))
        results.append(aten.add(parameter, 1))
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result.asnumpy(), i + 1)


VIEWS: dict[str, Callable[..., ms.Tensor]] = {
    "transposed": lambda x: mint.transpose(x, 0, 1),
    "a slice": lambda x: x[3:200:2, 5:],
    "a narrow": lambda x: mint.narrow(x, 1, 7, 100),
    "expanded": lambda x: mint.narrow(x, 0, 4, 1).expand((30, 256)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_views(view: str) -> None:
    found = aten.leaky_relu(VIEWS[view](ms.Tensor(X)), 0.1)
    array = {
        "transposed": X.T,
        "a slice": X[3:200:2, 5:],
        "a narrow": X[:, 7:107],
        "expanded": np.repeat(X[4:5], 30, 0),
    }[view]
    expected = torch.nn.functional.leaky_relu(torch.from_numpy(np.ascontiguousarray(array)), 0.1)
    np.testing.assert_array_equal(found.asnumpy(), expected.numpy())


def test_a_shape_that_is_refused_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"aten\.mm: .*shapes cannot be multiplied"):
            aten.mm(ms.Tensor(X), ms.Tensor(X[:3]))


def test_what_a_launch_throws_arrives_at_the_call_with_the_name() -> None:
    index = ms.Tensor(np.full((1, 1), 999), ms.int64)
    with pytest.raises(RuntimeError, match=r"aten\.gather: index 999 is out of bounds"):
        aten.gather(ms.Tensor(X), 1, index)
    np.testing.assert_array_equal(aten.add(ms.Tensor(X), 0).asnumpy(), X)


def test_draws_are_made_at_the_call() -> None:
    bridge.manual_seed(5)
    drawn = aten.rand_like(ms.Tensor(X))
    torch.manual_seed(5)  # by a caller who looks at `drawn` later
    np.testing.assert_array_equal(drawn.asnumpy(), torch.rand_like(torch.from_numpy(X)).numpy())


def test_a_view_is_differentiated_through() -> None:
    gradient = ms.grad(lambda x: aten.sum(aten.mul(mint.transpose(x, 0, 1)[3:], 2.0)))(ms.Tensor(X))
    expected = np.zeros_like(X)
    expected[:, 3:] = 2
    np.testing.assert_array_equal(gradient.asnumpy(), expected)


def test_what_fails_in_a_gradient_arrives_as_it_is() -> None:
    with pytest.raises(RuntimeError, match=r"^aten\.heaviside has no gradient: PyTorch"):
        ms.grad(lambda x: aten.sum(aten.heaviside(x, x)))(ms.Tensor(X))
    np.testing.assert_array_equal(ms.grad(lambda x: aten.sum(aten.mul(x, 3.0)))(ms.Tensor(X)).asnumpy(), X * 0 + 3)


def test_a_result_that_nobody_uses_has_a_gradient_of_zeros() -> None:
    gradient = ms.grad(lambda x: aten.sum(aten.std_mean.correction(x, 1)[1]))(ms.Tensor(X))
    leaf = torch.from_numpy(X).requires_grad_()
    torch.std_mean(leaf, 1)[1].sum().backward()
    assert leaf.grad is not None
    np.testing.assert_array_equal(gradient.asnumpy(), leaf.grad.numpy())


def test_a_recorded_call_that_is_not_differentiated_does_not_stay() -> None:
    large = ms.Tensor(np.ones((1 << 20,), np.float32))

    def loss(x):
        aten.exp(large)  # saves its result
        return aten.sum(x)

    gradient = ms.grad(loss)
    sizes = []
    for _ in range(2):
        for _ in range(50):
            gradient(ms.Tensor(X))
        sizes.append(int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
    assert sizes[1] - sizes[0] < 25 * large.nbytes  # half of what stayed if all did


def test_results_are_ordinary_tensors() -> None:
    result = aten.leaky_relu(ms.Tensor(X), 0.1)
    assert type(result) is type(ms.Tensor(X))
    assert (result.shape, result.dtype) == ((256, 256), ms.float32)
    result[0, 0] = 5.0  # in place
    assert aten.add(result, 0).asnumpy()[0, 0] == 5.0
    first, second = aten.max.dim(result, 1)
    assert (first.shape, second.dtype) == ((256,), ms.int64)


def names_of_threads(environment: dict[str, str]) -> str:
    """The threads of a process that called the bridge and then MindSpore's own operators."""
    code = (
        "import pathlib, mindspore as ms; from mindspore import mint; from bridge import aten;"
        "x = aten.neg(ms.Tensor([1.0, 2.0]));"
        "print(ms.grad(lambda x: mint.mul(aten.exp(x), 2.0))(x));"
        "print([path.read_text().strip() for path in pathlib.Path('/proc/self/task').glob('*/comm')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | environment
    )
    return done.stdout


def test_mindspores_threads_are_left_out_unless_asked_for() -> None:
    assert "backend_queue" not in names_of_threads({})
    assert "backend_queue" in names_of_threads({"MS_DEV_HOST_BLOCKING_RUN": "0"})
