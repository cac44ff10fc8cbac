#!/usr/bin/env python3
"""What stays in memory per call, and per step of training.

python scripts/bench_memory.py                   # the same call again and again, new numbers, new shapes
python scripts/bench_memory.py --training 10000  # steps of training: of the bridge's operators, a module, MindSpore's
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import torch
from mindspore import ops

import bridge
from bench_networks import numbers
from bridge import aten
from misuse.memory import rss


def calls() -> None:
    """Print what stays in memory per call: for the same call again and again, for new numbers, for new shapes."""
    x = ms.Tensor(np.ones((16, 16), np.float32))
    rows = [ms.Tensor(np.ones((n % 300 + 1, n // 300 + 1), np.float32)) for n in range(3000)]

    def repeated(n: int) -> None:
        aten.leaky_relu(x, 0.1).asnumpy()

    def new_number(n: int) -> None:
        aten.leaky_relu(x, 0.1 + n * 1e-6).asnumpy()

    def new_shape(n: int) -> None:
        aten.leaky_relu(rows[n % len(rows)], 0.1).asnumpy()

    for name, call, count in (
        ("repeated", repeated, 20000),
        ("new number", new_number, 9000),
        ("new shape", new_shape, 3000),
        ("known shape", new_shape, 3000),
    ):
        steps = []
        for n in range(count):
            if n % (count // 5) == 0:
                steps.append(rss())
            call(n)
        steps.append(rss())
        # The first step warms up.
        per_call = (steps[-1] - steps[1]) * 1024 / (count * 4 / 5)
        print(f"{name:12} {count:6} calls, RSS in MiB: {steps}, {per_call:.2f} KiB a call")


X, LABELS = numbers(32, 16), np.random.default_rng(0).integers(0, 4, 32)


class Loss(ms.nn.Cell):
    """Of a small net with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(numbers(4, 16)), name="weight")
        self.x, self.labels = ms.Tensor(X), ms.Tensor(LABELS)
        self.one_hot = ms.Tensor(np.eye(4, dtype=np.float32)[LABELS])


class BridgeLoss(Loss):
    def construct(self):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        hidden = aten.dropout(aten.leaky_relu(self.x, 0.1), 0.2, True)
        return aten.cross_entropy_loss(aten.linear(hidden, self.weight), self.labels)


class ModuleLoss(Loss):
    """Of a PyTorch module, which has buffers that change too."""

    def __init__(self) -> None:
        super().__init__()
        self.weight.requires_grad = False
        layers = torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 4)
        self.net = bridge.cell(torch.nn.Sequential(*layers))

    def construct(self):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.cross_entropy_loss(self.net(self.x), self.labels)


class MindSporeLoss(Loss):
    def construct(self):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        hidden = ops.dropout(ops.relu(self.x), 0.2)
        return -(ops.log_softmax(ops.matmul(hidden, self.weight.T)) * self.one_hot).mean()


class EmptyLoss(Loss):
    def construct(self):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.weight


def trained(loss: Loss, value_and_grad: Callable[..., Any], in_graph: bool) -> Callable[[], Any]:
    """A step of training."""
    optimizer = ms.nn.SGD(loss.trainable_params(), 0.01)
    differentiate = value_and_grad(loss, None, optimizer.parameters)

    def step():  # type: ignore[no-untyped-def]  # compiled by MindSpore
        value, gradients = differentiate()
        optimizer(gradients)
        return value

    return ms.jit(step) if in_graph else step


def training(steps: int) -> None:
    """Print what stays in memory per step of training: of the bridge's operators, of a module, and of MindSpore's own.

    Differentiating itself leaves something behind in MindSpore.
    """
    ways = {
        "bridge": (BridgeLoss, ms.value_and_grad, False),
        "module": (ModuleLoss, ms.value_and_grad, False),
        "module, in one": (ModuleLoss, bridge.value_and_grad, False),
        "module, graph": (ModuleLoss, ms.value_and_grad, True),
        "module, graph, in one": (ModuleLoss, bridge.value_and_grad, True),
        "MindSpore": (MindSporeLoss, ms.value_and_grad, False),
        "MindSpore, graph": (MindSporeLoss, ms.value_and_grad, True),
        "none": (EmptyLoss, ms.value_and_grad, False),
    }
    for name, (loss, value_and_grad, in_graph) in ways.items():
        step = trained(loss(), value_and_grad, in_graph)
        sizes = []
        for number in range(steps + 1):
            value = step()
            if number % (steps // 5) == 0:
                value.asnumpy()
                sizes.append(rss())
        per_step = (sizes[-1] - sizes[1]) * 1024 / (steps * 4 / 5)  # the first fifth warms up
        print(f"{name:22} {steps} steps, RSS in MiB: {sizes}, {per_step:.3f} KiB a step", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--training", type=int, metavar="STEPS")
    steps = parser.parse_args().training
    if steps:
        training(steps)
    else:
        calls()


if __name__ == "__main__":
    main()
