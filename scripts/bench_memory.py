#!/usr/bin/env python3
"""What stays in memory per call, and per step of training.

python scripts/bench_memory.py                   # the same call again and again, new numbers, new shapes
python scripts/bench_memory.py --training 10000  # a training step: here, in MindSpore's operators, in none
"""

from __future__ import annotations

import argparse
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import ops

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


def training(steps: int) -> None:
    """Print what stays in memory per step of training a small net: the bridge's operators, MindSpore's, and none.

    Differentiating itself leaves something behind in MindSpore.
    """
    numbers = np.random.default_rng(0)
    x = ms.Tensor(numbers.standard_normal((32, 16)).astype(np.float32))
    labels = numbers.integers(0, 4, 32)
    one_hot = ms.Tensor(np.eye(4, dtype=np.float32)[labels])
    target = ms.Tensor(labels)

    def bridge_loss(weight: Any) -> Any:
        hidden = aten.dropout(aten.leaky_relu(x, 0.1), 0.2, True)
        return aten.cross_entropy_loss(aten.linear(hidden, weight), target)

    def mindspore_loss(weight: Any) -> Any:
        hidden = ops.dropout(ops.relu(x), 0.2)
        return -(ops.log_softmax(ops.matmul(hidden, weight.T)) * one_hot).mean()

    def empty_loss(weight: Any) -> Any:
        return weight

    for name, loss in (("bridge", bridge_loss), ("MindSpore", mindspore_loss), ("none", empty_loss)):
        weight = ms.Parameter(ms.Tensor(numbers.standard_normal((4, 16)).astype(np.float32)), name="weight")
        optimiser = ms.nn.SGD([weight], 0.01)
        differentiated = ms.value_and_grad(loss, None, optimiser.parameters)
        sizes = []
        for step in range(steps + 1):
            value, gradients = differentiated(weight)
            optimiser(gradients)
            if step % (steps // 5) == 0:
                value.asnumpy()
                sizes.append(rss())
        per_step = (sizes[-1] - sizes[1]) * 1024 / (steps * 4 / 5)  # the first fifth warms up
        print(f"{name:10} {steps} steps, RSS in MiB: {sizes}, {per_step:.3f} KiB a step", flush=True)


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
