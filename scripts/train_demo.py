#!/usr/bin/env python3
"""Train one PyTorch module several times, from the same weights and on the same batches: in PyTorch, and in MindSpore
by bridge.cell, in PyNative and graph mode. Real data: scikit-learn's digits. On GPU, where MindSpore has all the
operators, the same network is also trained in these alone, for the speed (its dropout draws otherwise, so its losses
differ).

Prints the losses side by side, their largest relative difference, the accuracy on digits that were held back, and how
many images a second each took; draws the curves into build/train_cpu.png (or train_gpu.png).
"""

from __future__ import annotations

import argparse
import copy
import pathlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import matplotlib
import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops
from sklearn.datasets import load_digits

import bridge
from bridge import optim
from bridge.torch.nn import functional as F

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # after the choice of a back end that needs no screen

BATCH = 64
LEARNING_RATE = 0.05
SEED = 3


class Training(NamedTuple):
    """The loss of each step, the accuracy on the digits held back, and the speed once everything is warm."""

    losses: list[float]
    accuracy: float
    images_per_second: float


def data() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Images (n, 1, 8, 8) in [0, 1] and labels (n,), to train on and held back."""
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(SEED).permutation(len(images))
    train, test = order[:1500], order[1500:]
    return (images[train], labels[train]), (images[test], labels[test])


def batches(images: np.ndarray, labels: np.ndarray, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(SEED + 1)
    for _ in range(steps):
        chosen = rng.integers(0, len(images), BATCH)
        yield images[chosen], labels[chosen]


def torch_module() -> torch.nn.Module:
    """Convolution, batch norm, pooling, dropout and two dense layers, in PyTorch."""
    torch.manual_seed(SEED)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(256, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )


def mindspore_network(module: torch.nn.Module) -> nn.Cell:
    """The same network in MindSpore's own operators, with the module's weights."""
    given = {name: ms.Tensor(tensor.numpy()) for name, tensor in module.state_dict().items()}
    return nn.SequentialCell(
        nn.Conv2d(
            1, 16, 3, pad_mode="pad", padding=1, has_bias=True, weight_init=given["0.weight"], bias_init=given["0.bias"]
        ),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2, 2),
        nn.Flatten(),
        nn.Dropout(p=0.2),
        nn.Dense(256, 64, given["6.weight"], given["6.bias"]),
        nn.ReLU(),
        nn.Dense(64, 10, given["8.weight"], given["8.bias"]),
    )


class Clock:
    """Images per second over the second half of the steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.done = 0
        self.start = 0.0

    def tick(self) -> None:
        self.done += 1
        if self.done == self.steps // 2:
            self.start = time.perf_counter()

    def rate(self) -> float:
        return (self.steps - self.steps // 2) * BATCH / (time.perf_counter() - self.start)


def mindspore_loss(scores, labels):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return ops.cross_entropy(scores, labels.astype(ms.int32))


def train_bridge(module: torch.nn.Module, graph: bool, steps: int) -> Training:
    network = bridge.cell(copy.deepcopy(module))
    optimizer = optim.SGD(network.trainable_params(), LEARNING_RATE, foreach=False)
    return train_mindspore(network, F.cross_entropy, optimizer, graph, steps)


def train_mindspores_own(module: torch.nn.Module, graph: bool, steps: int) -> Training:
    network = mindspore_network(module)
    optimizer = nn.SGD(network.trainable_params(), LEARNING_RATE)
    return train_mindspore(network, mindspore_loss, optimizer, graph, steps)


def train_mindspore(network: nn.Cell, loss: Any, optimizer: nn.Optimizer, graph: bool, steps: int) -> Training:
    train, (test_images, test_labels) = data()

    def loss_of(images, labels):  # type: ignore[no-untyped-def]
        return loss(network(images), labels)

    differentiate = ms.value_and_grad(loss_of, None, optimizer.parameters)

    def step(images, labels):  # type: ignore[no-untyped-def]
        loss, gradients = differentiate(images, labels)
        optimizer(gradients)
        return loss

    def infer(images):  # type: ignore[no-untyped-def]
        return network(images)

    if graph:
        step, infer = ms.jit(step), ms.jit(infer)
    network.set_train()
    bridge.manual_seed(SEED)
    losses: list[float] = []
    clock = Clock(steps)
    for images, labels in batches(*train, steps):
        losses.append(float(step(ms.Tensor(images), ms.Tensor(labels)).asnumpy()))
        clock.tick()
    rate = clock.rate()
    network.set_train(False)
    predicted = infer(ms.Tensor(test_images)).asnumpy().argmax(1)
    return Training(losses, float((predicted == test_labels).mean()), rate)


def train_torch(module: torch.nn.Module, device: str, steps: int) -> Training:
    train, (test_images, test_labels) = data()
    network = copy.deepcopy(module).to(device)
    optimizer = torch.optim.SGD(network.parameters(), LEARNING_RATE, foreach=False)
    torch.manual_seed(SEED)
    losses: list[float] = []
    clock = Clock(steps)
    for images, labels in batches(*train, steps):
        optimizer.zero_grad()
        scores = network(torch.from_numpy(images).to(device))
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels).to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        clock.tick()
    rate = clock.rate()
    network.eval()
    with torch.no_grad():
        predicted = network(torch.from_numpy(test_images).to(device)).cpu().numpy().argmax(1)
    return Training(losses, float((predicted == test_labels).mean()), rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU")
    parsed = parser.parse_args()
    steps, device = parsed.steps, parsed.device
    ms.set_device(device)
    torch.backends.cudnn.deterministic = True  # without it, PyTorch's convolutions on GPU differ from run to run
    module = torch_module()
    runs = {
        "PyTorch": train_torch(module, "cuda" if device == "GPU" else "cpu", steps),
        "bridge, PyNative": train_bridge(module, False, steps),
        "bridge, graph": train_bridge(module, True, steps),
    }
    if device == "GPU":
        runs["MindSpore, PyNative"] = train_mindspores_own(module, False, steps)
        runs["MindSpore, graph"] = train_mindspores_own(module, True, steps)
    print("step  " + "".join(f"{name:>21}" for name in runs))
    for i in [*range(0, steps, max(steps // 10, 1)), steps - 1]:
        print(f"{i:4}  " + "".join(f"{run.losses[i]:21.8f}" for run in runs.values()))
    reference = runs["PyTorch"]
    for name, run in runs.items():
        largest = np.abs(np.array(run.losses) / np.array(reference.losses) - 1).max()
        speed = run.images_per_second / reference.images_per_second
        print(
            f"{name}: accuracy {run.accuracy:.4f}, largest relative difference of the loss {largest:.2e}, "
            f"{run.images_per_second:.0f} images a second ({speed:.2f} of PyTorch's)"
        )
    picture = pathlib.Path(__file__).parent.parent / "build" / f"train_{device.lower()}.png"
    picture.parent.mkdir(exist_ok=True)
    for name, run in runs.items():
        plt.plot(run.losses, label=name)
    plt.xlabel("step")
    plt.ylabel("loss")
    plt.legend()
    plt.savefig(picture)
    print(f"curves in {picture.relative_to(picture.parent.parent)}")


if __name__ == "__main__":
    main()
