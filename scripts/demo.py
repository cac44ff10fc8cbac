#!/usr/bin/env python3
"""PyTorch operators inside MindSpore, on CPU or GPU: one call, and then a classifier of handwritten digits."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import mindspore as ms
import numpy as np
import torch
from mindspore import nn
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from bridge import aten

MODES = {"PyNative": ms.PYNATIVE_MODE, "graph": ms.GRAPH_MODE}


class LeakyRelu(nn.Cell):
    """The example of MindSpore's tutorial on custom operators."""

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return aten.leaky_relu(x, negative_slope=0.01)


class Features(nn.Cell):
    """Straightens slanted digits and filters them, with operators for which MindSpore has no CPU kernel."""

    def __init__(self, filters: np.ndarray, shear: np.ndarray) -> None:
        super().__init__()
        self.filters = ms.Parameter(ms.Tensor(filters), name="filters", requires_grad=False)
        self.shear = ms.Tensor(shear)
        self.relu = nn.ReLU()

    def construct(self, images: ms.Tensor) -> ms.Tensor:
        grid = aten.affine_grid_generator(self.shear, images.shape, align_corners=False)
        straight = aten.grid_sampler_2d(images, grid, interpolation_mode=0, padding_mode=0, align_corners=False)
        filtered = self.relu(aten.conv2d(straight, self.filters, padding=1))
        pooled = aten.max_pool2d(filtered, kernel_size=2)
        return pooled.reshape((images.shape[0], -1))


class Classifier(nn.Cell):
    """Features, a MindSpore layer on top, and the three likeliest digits with the sums of their probabilities."""

    def __init__(self, features: Features, weight: np.ndarray, bias: np.ndarray) -> None:
        super().__init__()
        self.features = features
        self.dense = nn.Dense(weight.shape[1], weight.shape[0], ms.Tensor(weight), ms.Tensor(bias))

    def construct(self, images: ms.Tensor) -> tuple[ms.Tensor, ...]:
        features = self.features(images)
        logits = self.dense(features)
        log_probabilities = logits - aten.logsumexp(logits, dim=[1], keepdim=True)
        best, digits = aten.topk(log_probabilities, 3)
        return features, logits, digits, aten.cumsum(aten.exp(best), dim=1)


def in_pytorch(
    images: np.ndarray, filters: np.ndarray, shear: np.ndarray, logits: np.ndarray, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What PyTorch computes around the MindSpore layer, whose result is given."""
    x = torch.from_numpy(images).to(device)
    grid = torch.nn.functional.affine_grid(torch.from_numpy(shear).to(device), list(x.shape), align_corners=False)
    straight = torch.nn.functional.grid_sample(x, grid, align_corners=False)
    filtered = torch.nn.functional.conv2d(straight, torch.from_numpy(filters).to(device), padding=1).relu()
    features = torch.nn.functional.max_pool2d(filtered, 2).flatten(1)
    scores = torch.from_numpy(logits).to(device)
    best, digits = torch.topk(scores - torch.logsumexp(scores, 1, keepdim=True), 3)
    return features, digits, torch.cumsum(best.exp(), 1)


def straightening(images: np.ndarray) -> np.ndarray:
    """For each image the affine map that undoes its slant, which its second moments show."""
    rows, columns = np.mgrid[-1:1:8j, -1:1:8j]
    mass = images[:, 0] / images.sum((2, 3), dtype=np.float64)[..., None]
    row_mean = (mass * rows).sum((1, 2), keepdims=True)
    slant = (mass * (rows - row_mean) * columns).sum((1, 2)) / (mass * (rows - row_mean) ** 2).sum((1, 2))
    maps = np.zeros((len(images), 2, 3), np.float32)
    maps[:, 0, 0] = maps[:, 1, 1] = 1
    maps[:, 0, 1] = slant
    return maps


def show(in_mode: Callable[..., None], title: str, *arguments: str) -> None:
    for name, mode in MODES.items():
        ms.set_context(mode=mode)
        print(f"{title}, {name} mode:")
        in_mode(*arguments)


def leaky_relu() -> None:
    print(LeakyRelu()(ms.Tensor([[0.0, -0.1], [-0.2, 1.0]], ms.float32)))


def digits(device: str) -> None:
    """`device` is PyTorch's, for what it computes to compare."""
    data = load_digits()
    images = (data.images[:, None] / 16).astype(np.float32)
    train, test = slice(None, 1200), slice(1200, None)
    filters = np.random.default_rng(0).standard_normal((24, 1, 3, 3), np.float32)
    shears = straightening(images)

    # The layer on top is fitted to what the bridge computes for the training images.
    fitted = LogisticRegression(max_iter=300).fit(
        Features(filters, shears[train])(ms.Tensor(images[train])).asnumpy(), data.target[train]
    )
    weight, bias = fitted.coef_.astype(np.float32), fitted.intercept_.astype(np.float32)

    classifier = Classifier(Features(filters, shears[test]), weight, bias)
    results = [result.asnumpy() for result in classifier(ms.Tensor(images[test]))]
    features, logits, likeliest, confidence = results
    expected = in_pytorch(images[test], filters, shears[test], logits, device)
    pairs = zip(expected, (features, likeliest, confidence), strict=True)
    same = all(np.array_equal(theirs.cpu().numpy(), ours) for theirs, ours in pairs)
    print(f"  first images: digits {data.target[test][:8]}, likeliest {likeliest[:8, 0]}")
    accuracy = np.mean(likeliest[:, 0] == data.target[test])
    print(f"  accuracy {accuracy:.4f}, mean confidence {confidence[:, 0].mean():.6f}")
    print(f"  the same bits as PyTorch: {same}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU")
    device = parser.parse_args().device
    ms.set_device(device)
    show(leaky_relu, "leaky_relu")
    show(digits, "handwritten digits", "cuda" if device == "GPU" else "cpu")


if __name__ == "__main__":
    main()
