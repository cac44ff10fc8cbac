"""Dimensions that are out of range: inference refuses them in the kernel's words, so when a graph is compiled.

Some of PyTorch's meta functions do not look."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge.call.arguments import resolve
from bridge.infer.unknown import infer_unknown
from bridge.op.overload import overload
from conformance.source import module_of

X = torch.arange(6.0).view(2, 3)
INDEX = torch.tensor([0, 1])

# Overloads whose meta functions took a dimension of 7 with PyTorch 2.13, of all recorded calls of scripts/conformance.
PASSED_BY_META: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("_softmax", (X, 7, False), {}),
    ("softmax.int", (X, 7), {}),
    ("special_softmax", (X, 7), {}),
    ("sort", (X, 7), {}),
    ("sort.stable", (X,), {"stable": True, "dim": -8}),
    ("argsort", (X, 7), {}),
    ("argsort.stable", (X,), {"stable": True, "dim": -8}),
    ("cummax", (X[0, 0], 7), {}),
    ("cummin", (X[0, 0], -8), {}),
    ("diagonal_scatter", (X, X[0, :2], 0, 0, 7), {}),
    ("diagonal_backward", (X[0, :2], [2, 3], 0, -8, 1), {}),
    ("index_reduce", (X, 7, INDEX, X, "prod"), {}),
    ("select_scatter", (X, X[0], 7, 0), {}),
    ("select_backward", (X[0], [2, 3], -8, 0), {}),
    ("slice_scatter", (X, X, 7), {}),
    ("slice_backward", (X, [2, 3], 7, 0, 2, 1), {}),
]


def inferred(name: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, shape: Any = tuple) -> Any:
    """The shapes and dtypes of an overload's results, of tensors with the shapes that `shape` makes of theirs."""
    tensors = [ms.Tensor(x.numpy()) if isinstance(x, torch.Tensor) else x for x in args]
    bound = resolve(name, [overload(name)], tuple(tensors), kwargs or {})
    inputs = tuple((shape(x.shape), x.dtype) for x in args if isinstance(x, torch.Tensor))
    return infer_unknown(name, bound.text, "CPU", inputs)


@pytest.mark.parametrize(("name", "args", "kwargs"), PASSED_BY_META, ids=[name for name, *_ in PASSED_BY_META])
def test_inference_refuses_in_the_kernels_words(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    packet, _, suffix = name.partition(".")
    with pytest.raises(IndexError) as expected:
        getattr(getattr(torch.ops.aten, packet), suffix or "default")(*args, **kwargs)
    words = f"aten.{name}: {str(expected.value).splitlines()[0]}"
    large = 1 if name.endswith("backward") else 10**6  # the others name the sizes of their results
    for shape in (tuple, lambda own: (-1,) * len(own), lambda own: tuple(size * large for size in own)):
        with pytest.raises(IndexError) as caught:
            inferred(name, args, kwargs, shape)
        assert str(caught.value) == words


def test_a_dimension_of_the_result_alone_is_taken() -> None:
    assert inferred("select_backward", (X, [2, 3, 4], 2, 0)) == (((2, 3, 4), torch.float32),)
    assert inferred("unsqueeze", (X, 2)) == (((2, 3, 1), torch.float32),)
    assert inferred("softmax.int", (X[0, 0], -1)) == (((), torch.float32),)


class Sorted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sort(7).values  # sorted wrongly


class Widened(torch.nn.Module):
    """Calls whose dimension is that of the result: a view that it writes through, and a stack."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.unsqueeze(2).add_(1.0)
        return torch.stack([x, self.seen], 2)


@pytest.mark.usefixtures("own_programs", "graph_mode")
def test_a_program_takes_a_dimension_of_the_result() -> None:
    module, net = Widened(), bridge.cell(Widened())
    for _ in range(2):
        assert np.array_equal(net(ms.Tensor(X.numpy())).asnumpy(), module(X).numpy())


SOURCE = """
from bridge.torch.nn import functional as F
from mindspore import nn


class Net(nn.Cell):
    def construct(self, x):
        return F.softmax(x, 7)  # wrongly
"""


@pytest.mark.usefixtures("own_programs")
@pytest.mark.parametrize("kind", ["call", "program"])
def test_a_graph_is_refused_with_the_users_line(kind: str) -> None:
    net = module_of(SOURCE).Net() if kind == "call" else bridge.cell(Sorted())
    ms.set_context(mode=ms.GRAPH_MODE)
    words = r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 7\)"
    with pytest.raises(IndexError, match=rf"(?s){words}\n\nIn file .*wrongly"):
        net.compile(ms.Tensor(X.numpy()))
