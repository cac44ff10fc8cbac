"""Chains of one operator: a chain's fixed costs (waiting for the result, entering a graph) hardly count for a link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import mint, nn, ops

from bridge import aten

from .cases import Case

WAYS = ("bridge", "mindspore", "by hand", "torch")
Run = Callable[[], None]


def links(weights: Sequence[Any], each: int, length: int) -> list[Sequence[Any]]:
    """The weights of each link, which takes so many: its own out of the chain's, or the same for all."""
    return [weights[i * each % len(weights) :][:each] if each else () for i in range(length)]


class Chain(nn.Cell):
    """`length` times the operator, each with `each` weights, and after MindSpore's abs where the chain is mixed."""

    def __init__(self, op: Callable[..., Any], each: int, mixed: bool, length: int) -> None:
        super().__init__()
        self.op = op
        self.each = each
        self.mixed = mixed
        self.length = length

    def construct(self, x: Any, *weights: Any) -> Any:
        for own in links(weights, self.each, self.length):
            if self.mixed:
                x = mint.abs(x)
            x = self.op(x, *own)
        return x


def by_hand(op: Callable[..., Any], device: str) -> Callable[..., ms.Tensor]:
    """The operator on PyTorch tensors as one on MindSpore tensors, through NumPy; on CPU without a copy of the data."""

    def call(*tensors: ms.Tensor) -> ms.Tensor:
        return ms.Tensor.from_numpy(op(*(torch.from_numpy(t.asnumpy()).to(device) for t in tensors)).cpu().numpy())

    return call


def torch_chain(op: Callable[..., Any], each: int, mixed: bool, length: int) -> Callable[..., torch.Tensor]:
    def run(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for own in links(weights, each, length):
            x = op(torch.abs(x) if mixed else x, *own)
        return x

    return run


class Chains:
    """The chains of one case.

    Args:
        case: the operator.
        size: of its tensors.
        mode: MindSpore's, "pynative" or "graph".
        device: MindSpore's, "CPU" or "GPU".
        mixed: whether MindSpore's abs stands between.
        own_weights: whether each link has weights of its own, or all share them.
    """

    def __init__(
        self, case: Case, size: int, mode: str, device: str, *, mixed: bool = False, own_weights: bool = False
    ) -> None:
        self.case = case
        self.mode = mode
        self.mixed = mixed
        self.own_weights = own_weights
        self.x = np.random.default_rng(0).standard_normal(case.shape(size), np.float32)
        self.weights = case.weights(size)
        self.torch_device = "cuda" if device == "GPU" else "cpu"

    def chain(self, way: str, length: int) -> tuple[Callable[..., Any], list[Any]] | None:
        """A chain and its inputs, which are on the device once and for all; None where this way does not exist."""
        op = self._operator(way)
        if op is None:
            return None
        arrays = (self.x, *self.weights * (length if self.own_weights else 1))
        links = op, len(self.weights), self.mixed, length
        if way == "torch":
            return torch_chain(*links), [torch.from_numpy(a.copy()).to(self.torch_device) for a in arrays]
        return Chain(*links), [aten.clone(ms.Tensor(a)) for a in arrays]

    def _operator(self, way: str) -> Callable[..., Any] | None:
        if way == "by hand":
            return by_hand(self.case.torch, self.torch_device) if self.mode == "pynative" else None
        return {"bridge": self.case.bridge, "mindspore": self.case.mindspore, "torch": self.case.torch}[way]

    def forward(self, way: str, length: int) -> Run | None:
        """Runs the chain to its end."""
        made = self.chain(way, length)
        if made is None:
            return None
        function, inputs = made
        return self._warm(way, lambda: [function(*inputs)])

    def backward(self, way: str, length: int) -> Run | None:
        """Runs the chain and differentiates it, with respect to all inputs, for a given gradient of its result."""
        made = None if way == "by hand" else self.chain(way, length)
        if made is None:
            return None
        function, inputs = made
        if way == "torch":
            leaves, cotangent = [t.requires_grad_() for t in inputs], torch.ones_like(inputs[0])
            return self._warm(way, lambda: torch.autograd.grad(function(*leaves), leaves, cotangent))
        differentiated = ops.GradOperation(get_all=True, sens_param=True)(function)
        ones = ops.ones_like(inputs[0])
        return self._warm(way, lambda: differentiated(*inputs, ones))

    def _warm(self, way: str, run: Callable[[], Sequence[Any]]) -> Run | None:
        """What runs and waits for the results, once run; None if MindSpore has no kernel for it on this device."""

        def finish() -> None:
            results = run()
            if self.torch_device == "cuda":
                torch.cuda.synchronize() if way == "torch" else ms.runtime.synchronize()
            elif way != "torch":
                # Waits, and copies nothing; MindSpore's synchronize is not for CPU. The first result, which of the
                # gradients is that of the chain's input, is the last that is computed. To ask for each would take
                # longer than to compute it: NumPy makes an array of it.
                results[0].asnumpy()

        try:
            finish()
        except RuntimeError:
            if way != "mindspore":
                raise
            return None
        return finish
