"""einops on MindSpore's tensors: bridge.einops, and einops itself once that is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn

import bridge
from bridge import torch as T
from shared import data, torch_device

einops = pytest.importorskip("einops", reason="einops is an extra of the tests: pip install einops")
import bridge.einops  # noqa: E402  # which imports einops
from bridge.einops.layers import torch as layers  # noqa: E402

X = data(2, 3, 4, 6)
LIBRARIES = {"bridge.einops": bridge.einops, "einops": einops}
library = pytest.mark.parametrize("name", LIBRARIES)


# MindSpore compiles functions, and no lambdas that stand in a table.
def one(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return (x,)


def listed(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return ([x, x + 1],)


def positive(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return (x > 0,)


def twice(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return (x, x)


# Each row is a function's name, the tensors that it is called with, and its other arguments.
ROWS: dict[str, tuple[str, Callable[[Any], tuple[Any, ...]], tuple[str, ...], dict[str, int]]] = {
    "patches": ("rearrange", one, ("b c (h p) (w q) -> b (h w) (p q c)",), {"p": 2, "q": 3}),
    "heads": ("rearrange", one, ("b n h d -> b h n d",), {}),
    "flat": ("rearrange", one, ("b ... -> b (...)",), {}),
    "list": ("rearrange", listed, ("k b ... -> b k ...",), {}),
    "mean": ("reduce", one, ("b c (h p) (w q) -> b c h w", "mean"), {"p": 2, "q": 2}),
    "sum": ("reduce", one, ("b c h w -> c", "sum"), {}),
    "max": ("reduce", one, ("b c h w -> b () h ()", "max"), {}),
    "min": ("reduce", one, ("b ... -> b", "min"), {}),
    "prod": ("reduce", one, ("b c h w -> b w", "prod"), {}),
    "all": ("reduce", positive, ("b c h w -> b w", "all"), {}),
    "repeat": ("repeat", one, ("b c h w -> b (r c) h k w",), {"r": 2, "k": 3}),
    "einsum": ("einsum", twice, ("b c h w, b d h w -> b c d",), {}),
}
NOT_DIFFERENTIABLE = {"all"}


@library
@pytest.mark.parametrize("row", ROWS)
def test_results_are_pytorchs(row: str, name: str, mode: Callable[..., Any]) -> None:
    called, tensors, others, keywords = ROWS[row]
    function = getattr(LIBRARIES[name], called)

    def run(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return function(*tensors(x), *others, **keywords)

    expected = getattr(einops, called)(*tensors(torch.tensor(X, device=torch_device())), *others, **keywords)
    assert np.array_equal(mode(run)(ms.Tensor(X)).asnumpy(), expected.cpu().numpy())


@library
@pytest.mark.parametrize("row", [row for row in ROWS if row not in NOT_DIFFERENTIABLE])
def test_gradients_are_pytorchs(row: str, name: str, mode: Callable[..., Any]) -> None:
    called, tensors, others, keywords = ROWS[row]
    function = getattr(LIBRARIES[name], called)

    def run(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return T.square(function(*tensors(x), *others, **keywords)).sum()

    x = torch.tensor(X, device=torch_device(), requires_grad=True)
    (gradient,) = torch.autograd.grad(getattr(einops, called)(*tensors(x), *others, **keywords).square().sum(), x)
    assert np.array_equal(ms.grad(mode(run))(ms.Tensor(X)).asnumpy(), gradient.cpu().numpy())


def test_pack_and_back(mode: Callable[..., Any]) -> None:
    def there_and_back(x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        packed, shapes = bridge.einops.pack([x, y], "b * d")
        return bridge.einops.unpack(packed, shapes, "b * d")

    x, y = data(2, 3, 4, 5), data(2, 5)
    found = mode(there_and_back)(ms.Tensor(x), ms.Tensor(y))
    assert np.array_equal(found[0].asnumpy(), x) and np.array_equal(found[1].asnumpy(), y)


@library
def test_errors_are_einops(name: str) -> None:
    with pytest.raises(einops.EinopsError, match="expected 2 dims"):
        LIBRARIES[name].rearrange(ms.Tensor(X), "a b -> b a")


class Patches(nn.Cell):
    """Layers of einops between the bridge's and MindSpore's."""

    def __init__(self, lib: Any) -> None:
        super().__init__()
        self.patches = lib.Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=3)
        self.mix = lib.EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=18, d=5)
        self.mean = lib.Reduce("b n d -> b d", "mean")

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.mean(self.mix(self.patches(x)))


def test_layers(mode: Callable[..., Any]) -> None:
    from einops.layers import torch as of_pytorch

    torch.manual_seed(1)
    mix = of_pytorch.EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=18, d=5).to(torch_device())
    bridge.manual_seed(1)
    net = Patches(layers)
    assert [p.name for p in net.trainable_params()] == ["mix.weight", "mix.bias"]
    patches = einops.rearrange(torch.tensor(X, device=torch_device()), "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=3)
    expected = mix(patches).mean(dim=1)
    assert np.array_equal(mode(net)(ms.Tensor(X)).asnumpy(), expected.detach().cpu().numpy())
