"""A ported file beside PyTorch's: initial values, results, gradients, and ten steps of AdamW."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mindspore as ms
import numpy as np
import torch

import bridge
from bridge import nn as tnn
from bridge import torch as T
from bridge.optim import AdamW

from .file import File

STEPS = 10
OPTIONS: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.01}
MODES = {
    "pynative": ms.PYNATIVE_MODE,
    "graph": ms.GRAPH_MODE,
    "fused": ms.PYNATIVE_MODE,
    "fused graph": ms.GRAPH_MODE,
}


def compare(file: File, mode: str) -> list[str]:
    """What differs, as lines; none if all bits are equal.

    Args:
        mode: one of MODES; the fused ones are steps of the network by bridge.fuse.
    """
    ms.set_context(mode=MODES[mode])
    try:
        return list(_differences(file, mode.startswith("fused")))
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


def _differences(file: File, is_fused: bool) -> Iterator[str]:
    torch.manual_seed(0)
    module = file.make(file.original())
    bridge.manual_seed(0)
    net = file.make(file.ported(is_fused))
    yield from _unequal("initial values", tnn.state_dict(net), module.state_dict())
    called = bridge.fuse(net) if is_fused else net
    inputs = [torch.from_numpy(array) for array in file.inputs]
    tensors = [ms.Tensor(array) for array in file.inputs]
    optimizer, own_optimizer = (
        torch.optim.AdamW(module.parameters(), **OPTIONS),
        AdamW(net.trainable_params(), **OPTIONS),
    )

    def loss(*args):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        own_result = first(called(*args))
        return T.mean(T.square(own_result)), own_result

    value_and_grad = ms.value_and_grad(loss, None, net.trainable_params(), has_aux=True)
    for step in range(STEPS):
        torch.manual_seed(step)
        result = first(module(*inputs))
        optimizer.zero_grad()
        result.square().mean().backward()
        bridge.manual_seed(step)
        (_, own_result), own_gradients = value_and_grad(*tensors)
        if step == 0:
            gradients = {name: own.grad for name, own in module.named_parameters() if own.grad is not None}
            yield from _unequal("results", {"": _tensor(own_result)}, {"": result})
            yield from _unequal("gradients", _named(net, own_gradients), gradients)
        optimizer.step()
        own_optimizer(own_gradients)
    yield from _unequal(f"weights after {STEPS} steps", tnn.state_dict(net), module.state_dict())


def first(result):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return result[0] if isinstance(result, tuple) else result


def _named(net: Any, gradients: Any) -> dict[str, torch.Tensor]:
    """Gradients of `trainable_params`, under PyTorch's names."""
    found = {id(own): gradient for own, gradient in zip(net.trainable_params(), gradients, strict=True)}
    return {name: _tensor(found[id(own)]) for name, own in net.named_parameters() if id(own) in found}


def _tensor(value: ms.Tensor) -> torch.Tensor:
    return torch.from_numpy(value.asnumpy())


def _unequal(what: str, own: dict[str, Any], expected: dict[str, Any]) -> Iterator[str]:
    if own.keys() != expected.keys():
        yield f"{what}: names differ: {sorted(own.keys() ^ expected.keys())[:4]}"
    for name in sorted(own.keys() & expected.keys()):
        one, other = own[name], expected[name].detach()
        if not np.array_equal(one.numpy(), other.numpy(), equal_nan=one.is_floating_point()):
            yield f"{what}: {name or 'result'}: {(one - other).abs().max():.1e} of {other.abs().max():.1e}"
