"""Overloads that write to their arguments, in graph mode: each call writes once, in the program's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn

from bridge import aten
from bridge.op.table import Fact, facts, table

pytestmark = pytest.mark.usefixtures("context_mode")

X = np.random.default_rng(3).standard_normal((4, 3, 5), np.float32)


def batch_norm(op: Any, x: Any, mean: Any, var: Any) -> Any:
    return op.batch_norm(x, None, None, mean, var, True, 0.1, 1e-5, False)


def native_batch_norm(op: Any, x: Any, mean: Any, var: Any) -> Any:
    return op.native_batch_norm(x, None, None, mean, var, True, 0.1, 1e-5)[0]


def instance_norm(op: Any, x: Any, mean: Any, var: Any) -> Any:
    return op.instance_norm(x, None, None, mean, var, True, 0.1, 1e-5, False)


def update_stats(op: Any, x: Any, mean: Any, var: Any) -> Any:
    return op.batch_norm_update_stats(x, mean, var, 0.1)[0]


NORMS = [batch_norm, native_batch_norm, instance_norm, update_stats]


class Network(nn.Cell):
    """A network with running statistics."""

    def __init__(self, norm: Callable[..., Any]) -> None:
        super().__init__()
        self.norm = norm
        self.mean = ms.Parameter(ms.Tensor(np.zeros(3, np.float32)), requires_grad=False)
        self.var = ms.Parameter(ms.Tensor(np.ones(3, np.float32)), requires_grad=False)

    def check(self, times: int) -> None:
        """The statistics are PyTorch's after so many calls."""
        mean, var = torch.zeros(3), torch.ones(3)
        for _ in range(times):
            self.norm(torch.ops.aten, torch.from_numpy(X), mean, var)
        np.testing.assert_array_equal(self.mean.asnumpy(), mean.numpy())
        np.testing.assert_array_equal(self.var.asnumpy(), var.numpy())


class Unused(Network):
    def construct(self, x):
        self.norm(aten, x, self.mean, self.var)
        return x + 1


class Twice(Network):
    def construct(self, x):
        return self.norm(aten, x, self.mean, self.var) + self.norm(aten, x, self.mean, self.var)


class ReadBetween(Network):
    def construct(self, x):
        before = aten.mul(self.mean, 1.0)
        result = self.norm(aten, x, self.mean, self.var)
        after = aten.mul(self.mean, 1.0)
        return before, result, after


@pytest.mark.parametrize("norm", NORMS)
def test_a_call_whose_result_nobody_uses_writes(norm: Callable[..., Any]) -> None:
    network = Unused(norm)
    network(ms.Tensor(X)).asnumpy()
    network.check(1)


@pytest.mark.parametrize("norm", NORMS)
def test_two_equal_calls_write_twice(norm: Callable[..., Any]) -> None:
    network = Twice(norm)
    network(ms.Tensor(X)).asnumpy()
    network.check(2)


@pytest.mark.parametrize("norm", NORMS)
def test_a_read_sees_what_was_written_before_it(norm: Callable[..., Any]) -> None:
    for _ in range(4):  # the order was left to chance
        network = ReadBetween(norm)
        before, _, after = network(ms.Tensor(X))
        network.check(1)
        np.testing.assert_array_equal(before.asnumpy(), np.zeros(3, np.float32))
        np.testing.assert_array_equal(after.asnumpy(), network.mean.asnumpy())


@pytest.mark.parametrize("norm", [batch_norm, native_batch_norm, instance_norm])
def test_a_gradient_writes_no_more(norm: Callable[..., Any]) -> None:
    network = Twice(norm)
    ms.ops.GradOperation()(network)(ms.Tensor(X)).asnumpy()
    network.check(2)


def test_the_census_is_complete() -> None:
    """Every overload with running statistics either writes to them here, or is known not to."""
    with_statistics = {
        name
        for name, row in table().items()
        if "skipped" not in row and "running_mean" in row["schema"] and "backward" not in name
    }
    written = {name for name in with_statistics if Fact.WRITES_ARGUMENTS in facts(name)}
    mean, var = torch.zeros(3), torch.ones(3)
    for name in sorted(with_statistics - written):
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        known = {
            "input": torch.from_numpy(X),
            "running_mean": mean,
            "running_var": var,
            "training": True,
            "use_input_stats": True,
            "momentum": 0.1,
            "eps": 1e-5,
        }
        op(**{a.name: known.get(a.name) for a in op._schema.arguments if a.name in known or not a.has_default_value()})
        assert not mean.any() and bool((var == 1).all()), f"{name} writes: overloads.yaml has to say so"
