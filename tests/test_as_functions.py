"""What the bridge gives is a function to MindSpore and to functools: it can be differentiated, wrapped and named."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge import aten
from bridge import torch as T
from bridge.torch.nn import functional as F
from shared import data

differentiates_objects = pytest.mark.skipif(
    ms.__version__.startswith("2.8."), reason="MindSpore 2.8 differentiates functions and Cells, and no other objects"
)


@bridge.fuse
def gelu_of_exp(x):
    """Two calls as one operator."""
    return aten.gelu(aten.exp(x))


# What the bridge gives, PyTorch's function, and the name.
FUNCTIONS = {
    "operator": (aten.exp, torch.exp, "exp"),
    "overload": (aten.exp.default, torch.exp, "exp"),
    "torch": (T.exp, torch.exp, "torch.exp"),
    "functional": (F.silu, torch.nn.functional.silu, "torch.nn.functional.silu"),
    "fused": (gelu_of_exp, lambda x: torch.nn.functional.gelu(x.exp()), "gelu_of_exp"),
}
DIFFERENTIATED: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "grad": ms.grad,
    "value_and_grad": lambda function: lambda x: ms.value_and_grad(function)(x)[1],
    "GradOperation": ms.ops.GradOperation(),
    "vjp": lambda function: lambda x: ms.vjp(function, x)[1](ms.ops.ones_like(x))[0],
    "grad in a graph": lambda function: ms.jit(ms.grad(function)),
}
functions = pytest.mark.parametrize("own, theirs, name", FUNCTIONS.values(), ids=FUNCTIONS)


@differentiates_objects
@functions
@pytest.mark.parametrize("differentiated", DIFFERENTIATED.values(), ids=DIFFERENTIATED)
def test_it_can_be_differentiated_itself(own: Any, theirs: Any, name: str, differentiated: Any) -> None:
    array = data(3, 4)
    x = torch.from_numpy(array).requires_grad_()
    theirs(x).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(differentiated(own)(ms.Tensor(array)).asnumpy(), x.grad.numpy())


@functions
def test_it_can_be_wrapped(own: Any, theirs: Any, name: str) -> None:
    @functools.wraps(own)
    def wrapper(*args: Any) -> Any:
        return own(*args)

    assert (wrapper.__name__, wrapper.__qualname__) == (name, name)
    assert wrapper.__doc__ == own.__doc__
    array = data(3, 4)
    expected = theirs(torch.from_numpy(array)).numpy()
    np.testing.assert_array_equal(wrapper(ms.Tensor(array)).asnumpy(), expected)


def test_a_fused_function_is_the_function_that_it_was() -> None:
    assert gelu_of_exp.__module__ == __name__
    assert inspect.getdoc(gelu_of_exp) == "Two calls as one operator."
    assert list(inspect.signature(gelu_of_exp).parameters) == ["x"]


@differentiates_objects
def test_two_of_one_name_are_told_apart() -> None:
    """PyNative mode knows a differentiated function by its name and lines, and these two have the same."""
    x = ms.Tensor(data(4))
    twice = [bridge.fuse(lambda x, factor=factor: aten.mul(x, factor)) for factor in (2.0, 3.0)]
    for _ in range(2):
        assert [ms.grad(function)(x)[0].item() for function in twice] == [2.0, 3.0]
