"""PointNet++ in MindSpore: its operators from C++ and CUDA, and two layers of them."""

from __future__ import annotations

import itertools
import pathlib

import mindspore as ms
import numpy as np
import torch
from mindspore import nn

from bridge import aten, kernels

HERE = pathlib.Path(__file__).parent
SOURCES = {"sources": HERE / "pointnet2.cpp", "cuda": HERE / "pointnet2.cu"}

furthest_point_sampling = kernels.extension(
    schema="furthest_point_sampling(Tensor xyz, int count) -> Tensor",
    results=lambda xyz, count: xyz.new_empty(xyz.shape[0], count, dtype=torch.int64),
    **SOURCES,
)
ball_query = kernels.extension(
    schema="ball_query(Tensor centres, Tensor xyz, float radius, int count) -> Tensor",
    results=lambda centres, xyz, radius, count: xyz.new_empty(*centres.shape[:2], count, dtype=torch.int64),
    **SOURCES,
)
group_points = kernels.extension(
    schema="group_points(Tensor features, Tensor index) -> Tensor",
    results=lambda features, index: features.new_empty(*features.shape[:2], *index.shape[1:]),
    gradient="features: group_points_backward(grad, index, features)",
    **SOURCES,
)
three_nn = kernels.extension(
    schema="three_nn(Tensor unknown, Tensor known) -> (Tensor distance, Tensor index)",
    results=lambda unknown, known: (torch.empty_like(unknown), torch.empty_like(unknown, dtype=torch.int64)),
    gradient="unknown: not_differentiable, known: not_differentiable",
    **SOURCES,
)
three_interpolate = kernels.extension(
    schema="three_interpolate(Tensor features, Tensor index, Tensor weight) -> Tensor",
    results=lambda features, index, weight: features.new_empty(*features.shape[:2], index.shape[1]),
    gradient="features: three_interpolate_backward(grad, index, weight, features), weight: not_differentiable",
    **SOURCES,
)


def _weights(rng: np.random.Generator, sizes: list[int]) -> ms.ParameterTuple:
    """Weight (out, in, 1, 1) and bias of each convolution."""
    found = []
    for i, (inside, outside) in enumerate(itertools.pairwise(sizes)):
        weight = rng.standard_normal((outside, inside, 1, 1)).astype(np.float32) * np.float32(np.sqrt(2 / inside))
        found += [
            ms.Parameter(ms.Tensor(weight), name=f"weight{i}"),
            ms.Parameter(ms.Tensor(np.zeros(outside, np.float32)), name=f"bias{i}"),
        ]
    return ms.ParameterTuple(found)


class SharedPerceptron(nn.Cell):
    """Convolutions of size 1 with ReLU: the same perceptron at every place. (b, c, m, k) -> (b, c', m, k)."""

    def __init__(self, rng: np.random.Generator, sizes: list[int]) -> None:
        super().__init__()
        self.weights = _weights(rng, sizes)
        self.count = len(sizes) - 1

    def construct(self, x):
        for i in range(self.count):
            x = aten.relu(aten.conv2d(x, self.weights[2 * i], self.weights[2 * i + 1]))
        return x


class SetAbstraction(nn.Cell):
    """Takes `count` centres and describes the neighbourhood of each.

    xyz (b, n, 3), features (b, c, n) -> centres (b, count, 3), features (b, c', count).
    """

    def __init__(self, rng: np.random.Generator, count: int, radius: float, neighbours: int, sizes: list[int]) -> None:
        super().__init__()
        self.count = count
        self.radius = radius
        self.neighbours = neighbours
        self.perceptron = SharedPerceptron(rng, [sizes[0] + 3, *sizes[1:]])

    def construct(self, xyz, features):
        channels_first = aten.transpose(xyz, 1, 2)
        taken = furthest_point_sampling(xyz, self.count)
        centres = group_points(channels_first, aten.unsqueeze(taken, 2))
        centre_points = aten.transpose(aten.squeeze(centres, 3), 1, 2)
        near = ball_query(centre_points, xyz, self.radius, self.neighbours)
        offsets = aten.sub(group_points(channels_first, near), centres)
        grouped = aten.cat([offsets, group_points(features, near)], 1)
        return centre_points, aten.amax(self.perceptron(grouped), [3])


class FeaturePropagation(nn.Cell):
    """Brings features of few points to many, by their three nearest, and joins what the many had.

    xyz (b, n, 3), features (b, c, n), few (b, m, 3), few_features (b, c', m) -> (b, c'', n).
    """

    def __init__(self, rng: np.random.Generator, sizes: list[int]) -> None:
        super().__init__()
        self.perceptron = SharedPerceptron(rng, sizes)

    def construct(self, xyz, features, few, few_features):
        distance, index = three_nn(xyz, few)
        closeness = aten.reciprocal(aten.add(distance, 1e-8))
        weight = aten.div(closeness, aten.sum(closeness, [2], True))
        spread = three_interpolate(few_features, index, weight)
        joined = aten.unsqueeze(aten.cat([spread, features], 1), 3)
        return aten.squeeze(self.perceptron(joined), 3)


class Classifier(nn.Cell):
    """Point clouds (b, n, 3) -> logits (b, classes)."""

    def __init__(self, rng: np.random.Generator, classes: int) -> None:
        super().__init__()
        self.abstraction = SetAbstraction(rng, 32, 0.4, 16, [3, 16, 32])
        self.propagation = FeaturePropagation(rng, [32 + 3, 32])
        weight = rng.standard_normal((classes, 32)).astype(np.float32) * np.float32(np.sqrt(1 / 32))
        self.weight = ms.Parameter(ms.Tensor(weight), name="head")

    def construct(self, xyz):
        features = aten.transpose(xyz, 1, 2)
        few, few_features = self.abstraction(xyz, features)
        everywhere = self.propagation(xyz, features, few, few_features)
        return aten.linear(aten.amax(everywhere, [2]), self.weight)
