#!/usr/bin/env python3
"""Train one convolutional network twice, from the same weights and on the same batches: in MindSpore with bridge
operators, in PyNative and graph mode, and in PyTorch. Real data: scikit-learn's digits.

Prints the losses side by side, their largest relative difference, and the accuracy on digits that were held back; draws
the curves into build/train_cpu.png.
"""
from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable, Iterator

import matplotlib
import mindspore as ms
import numpy as np
import torch
from mindspore import nn
from sklearn.datasets import load_digits

import bridge
from bridge import aten

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # after the choice of a back end that needs no screen

BATCH = 64
LEARNING_RATE = 0.05
SEED = 3
SHAPES = {
    "conv": (16, 1, 3, 3), "conv_bias": (16,), "scale": (16,), "shift": (16,), "hidden": (64, 256),
    "hidden_bias": (64,), "head": (10, 64), "head_bias": (10,),
}  # fmt: skip


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


def torch_network(w: dict[str, torch.Tensor], x: torch.Tensor, training: bool) -> torch.Tensor:
    """The same network in PyTorch."""
    x = torch.conv2d(x, w["conv"], w["conv_bias"], 1, 1)
    x = torch.batch_norm(x, w["scale"], w["shift"], w["mean"], w["variance"], training, 0.1, 1e-5, False)
    x = torch.dropout(torch.flatten(torch.max_pool2d(torch.relu(x), 2), 1), 0.2, training)
    return torch.nn.functional.linear(
        torch.relu(torch.nn.functional.linear(x, w["hidden"], w["hidden_bias"])), w["head"], w["head_bias"]
    )


def train_mindspore(graph: bool, steps: int) -> tuple[list[float], float]:
    """The loss of each step, and the accuracy on the digits held back."""
    train, (test_images, test_labels) = data()
    network = Network(initial_weights())
    optimiser = nn.SGD(network.trainable_params(), LEARNING_RATE)

    def loss_of(images, labels):  # type: ignore[no-untyped-def]
        return aten.cross_entropy_loss(network(images, True), labels)

    def infer(images):  # type: ignore[no-untyped-def]
        return network(images, False)

    step: Callable[..., tuple[ms.Tensor, tuple[ms.Tensor, ...]]]
    step = ms.value_and_grad(loss_of, None, optimiser.parameters)
    if graph:
        step, infer = ms.jit(step), ms.jit(infer)
    bridge.manual_seed(SEED)
    losses = []
    for images, labels in batches(*train, steps):
        loss, gradients = step(ms.Tensor(images), ms.Tensor(labels))
        optimiser(gradients)
        losses.append(float(loss.asnumpy()))
    predicted = infer(ms.Tensor(test_images)).asnumpy().argmax(1)
    return losses, float((predicted == test_labels).mean())


def train_torch(steps: int) -> tuple[list[float], float]:
    train, (test_images, test_labels) = data()
    weights = {name: torch.from_numpy(value).requires_grad_() for name, value in initial_weights().items()}
    optimiser = torch.optim.SGD(list(weights.values()), LEARNING_RATE)
    everything = {**weights, "mean": torch.zeros(16), "variance": torch.ones(16)}
    torch.manual_seed(SEED)
    losses = []
    for images, labels in batches(*train, steps):
        optimiser.zero_grad()
        scores = torch_network(everything, torch.from_numpy(images), True)
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    with torch.no_grad():
        predicted = torch_network(everything, torch.from_numpy(test_images), False).numpy().argmax(1)
    return losses, float((predicted == test_labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    runs = {
        "PyTorch": train_torch(steps),
        "bridge, PyNative": train_mindspore(False, steps),
        "bridge, graph": train_mindspore(True, steps),
    }
    print("step  " + "".join(f"{name:>18}" for name in runs))
    for i in [*range(0, steps, max(steps // 10, 1)), steps - 1]:
        print(f"{i:4}  " + "".join(f"{losses[i]:18.8f}" for losses, _ in runs.values()))
    reference = np.array(runs["PyTorch"][0])
    for name, (losses, accuracy) in runs.items():
        largest = np.abs((np.array(losses) - reference) / reference).max()
        print(f"{name}: accuracy {accuracy:.4f}, largest relative difference of the loss {largest:.2e}")
    picture = pathlib.Path(__file__).parent.parent / "build" / "train_cpu.png"
    picture.parent.mkdir(exist_ok=True)
    for (name, (losses, _)), style in zip(runs.items(), ("-", "--", ":"), strict=True):
        plt.plot(losses, style, label=name)
    plt.xlabel("step")
    plt.ylabel("loss")
    plt.legend()
    plt.savefig(picture)
    print(f"curves in {picture.relative_to(picture.parent.parent)}")


if __name__ == "__main__":
    main()
