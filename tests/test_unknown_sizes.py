"""Numbers that a graph knows only when it runs, most of them sizes taken from `x.shape`, as arguments of calls."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn

from conformance.source import module_of

pytestmark = pytest.mark.usefixtures("graph_mode")

# What a network writes, with n for x.shape[0], which is unknown while the graph is compiled, and the same in PyTorch.
CALLS: list[tuple[str, Callable[[torch.Tensor, int], torch.Tensor]]] = [
    ("aten.view(x, [n, 4, 4])", lambda x, n: x.view(n, 4, 4)),
    ("aten.view(x, [n * 4, 4])", lambda x, n: x.view(n * 4, 4)),
    ("aten.view(x, n * 2, -1)", lambda x, n: x.view(n * 2, -1)),
    ("aten.reshape(x, (n, 2, x.shape[1] // 2))", lambda x, n: x.reshape(n, 2, 8)),
    (
        "aten.view(aten.transpose(aten.view(x, [n, 4, 4]), 1, 2), [n, 16])",
        lambda x, n: x.view(n, 4, 4).transpose(1, 2).reshape(n, 16),
    ),
    ("aten.unflatten(x, 0, [n // 2, 2])", lambda x, n: x.unflatten(0, [n // 2, 2])),
    ("aten.expand(aten.slice(x, 0, 0, 1), [n, 16])", lambda x, n: x[:1].expand(n, 16)),
    ("aten.slice(x, 0, 1, n - 1)", lambda x, n: x[1 : n - 1]),
    ("aten.narrow(x, 0, 0, n // 2)", lambda x, n: x.narrow(0, 0, n // 2)),
    ("aten.repeat(x, [n, 1])", lambda x, n: x.repeat(n, 1)),
    ("aten.roll(x, n - 1, 0)", lambda x, n: torch.roll(x, n - 1, 0)),
    ("aten.cat([x, aten.zeros([n, 2])], 1)", lambda x, n: torch.cat([x, torch.zeros(n, 2)], 1)),
    ("aten.sum(aten.view(x, [n, -1]), 1)", lambda x, n: x.view(n, -1).sum(1)),
    ("aten.add(x, x, alpha=n)", lambda x, n: torch.add(x, x, alpha=n)),
    ("aten.div(x, n)", lambda x, n: x / n),
    ("aten.mul(x, 1 / n)", lambda x, n: x * (1 / n)),
    ("aten.zeros([n, 3])", lambda x, n: torch.zeros(n, 3)),
    ("aten.full([n], 2.5)", lambda x, n: torch.full((n,), 2.5)),
    ("aten.arange(n)", lambda x, n: torch.arange(n)),
    ("aten.arange(0, n, 2, dtype=ms.float32)", lambda x, n: torch.arange(0, n, 2, dtype=torch.float32)),
    ("aten.eye(n)", lambda x, n: torch.eye(n)),
    ("aten.new_zeros(x, [n + 1])", lambda x, n: x.new_zeros(n + 1)),
]


def network(expression: str) -> nn.Cell:
    """A cell that gives the expression of x, whose first dimension is unknown."""
    module = module_of(
        "import mindspore as ms\nfrom mindspore import nn\nfrom bridge import aten\n\n\n"
        "class Network(nn.Cell):\n"
        "    def construct(self, x):\n"
        "        n = x.shape[0]\n"
        f"        return {expression}\n"
    )
    cell: nn.Cell = module.Network()
    cell.set_inputs(ms.Tensor(shape=[None, 16], dtype=ms.float32))
    return cell


@pytest.mark.parametrize("expression, expected", CALLS, ids=[call for call, _ in CALLS])
def test_one_graph_serves_every_size(expression: str, expected: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
    cell = network(expression)
    compiled = []
    for n in (4, 6, 2):
        x = np.random.default_rng(n).standard_normal((n, 16), np.float32)
        found, wanted = cell(ms.Tensor(x)), expected(torch.from_numpy(x), n)
        assert str(found.dtype).lower() == str(wanted.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(found.asnumpy(), wanted.numpy())
        compiled.append(len(cell.compile_cache))
    assert compiled[1] == compiled[2]  # MindSpore names a graph anew for the second call


@pytest.mark.parametrize("expression, expected", CALLS[:16], ids=[call for call, _ in CALLS[:16]])
def test_gradients(expression: str, expected: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
    x = np.random.default_rng(0).standard_normal((6, 16), np.float32)
    found = ms.ops.GradOperation()(network(expression))(ms.Tensor(x))
    leaf = torch.from_numpy(x).requires_grad_()
    result = expected(leaf, 6)
    (wanted,) = torch.autograd.grad(result, leaf, torch.ones_like(result))
    np.testing.assert_array_equal(found.asnumpy(), wanted.numpy())


def test_a_float_that_is_no_tensor_is_refused_with_the_users_line() -> None:
    with pytest.raises(TypeError, match="has to be a constant") as caught:
        network("aten.leaky_relu(x, 1 / n)")(ms.Tensor(np.ones((2, 16), np.float32)))
    assert "return aten.leaky_relu(x, 1 / n)" in str(caught.value)


def test_a_float_that_is_too_short_for_doubles_is_refused() -> None:
    cell = network("aten.mul(x.astype(ms.float64), 1 / n)")
    with pytest.raises(TypeError, match="has to be a constant"):
        cell(ms.Tensor(np.ones((2, 16), np.float32)))
