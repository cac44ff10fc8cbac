#!/usr/bin/env python3
"""Train one convolutional network twice, from the same weights and on the same batches: in MindSpore with bridge
operators, in PyNative and graph mode, and in PyTorch. Real data: scikit-learn's digits. On GPU, where MindSpore has all
the operators, it also trains in these alone, for the speed (its dropout draws otherwise, so its losses differ).

Prints the losses side by side, their largest relative difference, the accuracy on digits that were held back, and how
many images a second each took; draws the curves into build/train_cpu.png (or train_gpu.png).
"""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import matplotlib
import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops
from sklearn.datasets import load_digits

import bridge
from bridge import aten

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # after the choice of a back end that needs no screen

BATCH = 64
LEARNING_RATE = 0.05
SEED = 3
SHAPES = {
    "conv": (16, 1, 3, 3),
    "conv_bias": (16,),
    "scale": (16,),
    "shift": (16,),
    "hidden": (64, 256),
    "hidden_bias": (64,),
    "head": (10, 64),
    "head_bias": (10,),
}


class Training(NamedTuple):
    """The loss of each step, the accuracy on the digits held back, and the speed once everything is warm."""

    losses: list[float]
    accuracy: float
    images_per_second: float


def initial_weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    weights = {name: (rng.standard_normal(shape) * 0.1).astype(np.float32) for name, shape in SHAPES.items()}
    weights["scale"] = np.ones(16, np.float32)
    return weights


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


class Network(nn.Cell):
    """Convolution, batch norm, pooling, dropout and two dense layers; MindSpore's own relu between bridge operators."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        super().__init__()
        for name, value in weights.items():
            setattr(self, name, ms.Parameter(ms.Tensor(value), name=name))
        self.mean = ms.Parameter(ms.Tensor(np.zeros(16, np.float32)), name="mean", requires_grad=False)
        self.variance = ms.Parameter(ms.Tensor(np.ones(16, np.float32)), name="variance", requires_grad=False)
        self.relu = nn.ReLU()

    def construct(self, x, training):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        x = aten.conv2d(x, self.conv, self.conv_bias, [1, 1], [1, 1])
        x = aten.batch_norm(x, self.scale, self.shift, self.mean, self.variance, training, 0.1, 1e-5, False)
        x = aten.max_pool2d(self.relu(x), [2, 2])
        x = aten.dropout(aten.flatten(x, 1), 0.2, training)
        x = self.relu(aten.linear(x, self.hidden, self.hidden_bias))
        return aten.linear(x, self.head, self.head_bias)


class Descent(nn.Cell):
    """Stochastic gradient descent with PyTorch's rounding."""

    def __init__(self, parameters: list[ms.Parameter]) -> None:
        super().__init__()
        self.parameters = ms.ParameterTuple(parameters)

    def construct(self, gradients):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        for i in range(len(gradients)):
            ops.assign(self.parameters[i], aten.add(self.parameters[i], gradients[i], alpha=-LEARNING_RATE))
        return gradients


class MindSporeNetwork(nn.Cell):
    """The same network in MindSpore's own operators."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        super().__init__()
        given = {name: ms.Tensor(value) for name, value in weights.items()}
        self.features = nn.SequentialCell(
            nn.Conv2d(
                1,
                16,
                3,
                pad_mode="pad",
                padding=1,
                has_bias=True,
                weight_init=given["conv"],
                bias_init=given["conv_bias"],
            ),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Flatten(),
        )
        self.dropout = nn.Dropout(p=0.2)
        self.head = nn.SequentialCell(
            nn.Dense(256, 64, given["hidden"], given["hidden_bias"]),
            nn.ReLU(),
            nn.Dense(64, 10, given["head"], given["head_bias"]),
        )

    def construct(self, x, training):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        x = self.features(x)
        if training:
            x = self.dropout(x)
        return self.head(x)


def torch_network(w: dict[str, torch.Tensor], x: torch.Tensor, training: bool) -> torch.Tensor:
    """The same network in PyTorch."""
    x = torch.conv2d(x, w["conv"], w["conv_bias"], 1, 1)
    x = torch.batch_norm(x, w["scale"], w["shift"], w["mean"], w["variance"], training, 0.1, 1e-5, False)
    x = torch.dropout(torch.flatten(torch.max_pool2d(torch.relu(x), 2), 1), 0.2, training)
    return torch.nn.functional.linear(
        torch.relu(torch.nn.functional.linear(x, w["hidden"], w["hidden_bias"])), w["head"], w["head_bias"]
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


def train_mindspore(make: type[nn.Cell], graph: bool, steps: int) -> Training:
    train, (test_images, test_labels) = data()
    network = make(initial_weights())
    own = make is MindSporeNetwork
    network.set_train(own)
    optimiser = nn.SGD(network.trainable_params(), LEARNING_RATE) if own else Descent(network.trainable_params())

    def loss_of(images, labels):  # type: ignore[no-untyped-def]
        scores = network(images, True)
        return ops.cross_entropy(scores, labels.astype(ms.int32)) if own else aten.cross_entropy_loss(scores, labels)

    def infer(images):  # type: ignore[no-untyped-def]
        return network(images, False)

    differentiate = ms.value_and_grad(loss_of, None, optimiser.parameters)

    def step(images, labels):  # type: ignore[no-untyped-def]
        loss, gradients = differentiate(images, labels)
        optimiser(gradients)
        return loss

    if graph:
        step, infer = ms.jit(step), ms.jit(infer)
    bridge.manual_seed(SEED)
    losses: list[float] = []
    clock = Clock(steps)
    for images, labels in batches(*train, steps):
        loss = step(ms.Tensor(images), ms.Tensor(labels))
        losses.append(float(loss.asnumpy()))
        clock.tick()
    rate = clock.rate()
    network.set_train(False)
    predicted = infer(ms.Tensor(test_images)).asnumpy().argmax(1)
    return Training(losses, float((predicted == test_labels).mean()), rate)


def train_torch(device: str, steps: int) -> Training:
    train, (test_images, test_labels) = data()
    weights = {name: torch.from_numpy(value).to(device).requires_grad_() for name, value in initial_weights().items()}
    optimiser = torch.optim.SGD(list(weights.values()), LEARNING_RATE, foreach=False)
    everything = {**weights, "mean": torch.zeros(16, device=device), "variance": torch.ones(16, device=device)}
    torch.manual_seed(SEED)
    losses: list[float] = []
    clock = Clock(steps)
    for images, labels in batches(*train, steps):
        optimiser.zero_grad()
        scores = torch_network(everything, torch.from_numpy(images).to(device), True)
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels).to(device))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        clock.tick()
    rate = clock.rate()
    with torch.no_grad():
        predicted = torch_network(everything, torch.from_numpy(test_images).to(device), False).cpu().numpy().argmax(1)
    return Training(losses, float((predicted == test_labels).mean()), rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU")
    parsed = parser.parse_args()
    steps, device = parsed.steps, parsed.device
    ms.set_device(device)
    torch.backends.cudnn.deterministic = True  # without it, PyTorch's convolutions on GPU differ from run to run
    runs = {
        "PyTorch": train_torch("cuda" if device == "GPU" else "cpu", steps),
        "bridge, PyNative": train_mindspore(Network, False, steps),
        "bridge, graph": train_mindspore(Network, True, steps),
    }
    if device == "GPU":
        runs["MindSpore, PyNative"] = train_mindspore(MindSporeNetwork, False, steps)
        runs["MindSpore, graph"] = train_mindspore(MindSporeNetwork, True, steps)
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
