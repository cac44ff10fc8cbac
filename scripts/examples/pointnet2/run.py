"""A PointNet++ that learns to tell balls, boxes and rings, next to the same network in PyTorch over the same kernels.

Usage:

    python scripts/examples/pointnet2/run.py [--device GPU]
"""

from __future__ import annotations

import pathlib
import sys

import mindspore as ms
import numpy as np
import torch
from mindspore import nn

from bridge import aten

sys.path += [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent)]
import pointnet2
from checking import close, device_argument, modes

STEPS = 25
RATE = 0.05


def clouds(rng: np.random.Generator, count: int, points: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Points on balls, boxes and rings with a little noise: (count, points, 3) float32, and labels (count)."""
    labels = rng.integers(0, 3, count)
    direction = rng.standard_normal((count, points, 3))
    ball = direction / np.linalg.norm(direction, axis=2, keepdims=True)
    box = direction / np.abs(direction).max(axis=2, keepdims=True)
    angle = rng.uniform(0, 2 * np.pi, (count, points))
    ring = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=2)
    shapes = np.stack([ball, box, ring])[labels, np.arange(count)]
    return (shapes + 0.05 * rng.standard_normal(shapes.shape)).astype(np.float32), labels.astype(np.int64)


class GroupPoints(torch.autograd.Function):
    """group_points in PyTorch, over the same C++."""

    @staticmethod
    def forward(ctx, features, index):
        ctx.save_for_backward(features, index)
        return pointnet2.group_points.on_torch(features, index)

    @staticmethod
    def backward(ctx, grad):
        features, index = ctx.saved_tensors
        return backward_of(pointnet2.group_points, "group_points_backward").on_torch(grad, index, features), None


class ThreeInterpolate(torch.autograd.Function):
    """three_interpolate in PyTorch, over the same C++."""

    @staticmethod
    def forward(ctx, features, index, weight):
        ctx.save_for_backward(features, index, weight)
        return pointnet2.three_interpolate.on_torch(features, index, weight)

    @staticmethod
    def backward(ctx, grad):
        features, index, weight = ctx.saved_tensors
        backward = backward_of(pointnet2.three_interpolate, "three_interpolate_backward")
        return backward.on_torch(grad, index, weight, features), None, None


def backward_of(kernel, name):
    """The kernel that a gradient line calls."""
    return kernel.gradient_kernels[name]


def perceptron(x: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        x = torch.relu(torch.conv2d(x, weight, bias))
    return x


def torch_network(parameters: dict[str, torch.Tensor], xyz: torch.Tensor) -> torch.Tensor:
    """pointnet2.Classifier in PyTorch."""
    features = xyz.transpose(1, 2)
    taken = pointnet2.furthest_point_sampling.on_torch(xyz, 32)
    centres = GroupPoints.apply(features, taken.unsqueeze(2))
    few = centres.squeeze(3).transpose(1, 2)
    near = pointnet2.ball_query.on_torch(few, xyz, 0.4, 16)
    grouped = torch.cat([GroupPoints.apply(features, near) - centres, GroupPoints.apply(features, near)], 1)
    abstraction = [value for name, value in parameters.items() if name.startswith("abstraction")]
    few_features = perceptron(grouped, abstraction).amax([3])
    distance, index = pointnet2.three_nn.on_torch(xyz, few)
    closeness = (distance + 1e-8).reciprocal()
    weight = closeness / closeness.sum([2], True)
    spread = ThreeInterpolate.apply(few_features, index, weight)
    propagation = [value for name, value in parameters.items() if name.startswith("propagation")]
    everywhere = perceptron(torch.cat([spread, features], 1).unsqueeze(3), propagation).squeeze(3)
    return torch.nn.functional.linear(everywhere.amax([2]), parameters["head"])


def train_torch(start: dict[str, np.ndarray], data: np.ndarray, labels: np.ndarray, device: str):
    """The gradients of the first step, and the loss of each."""
    on = "cuda" if device == "GPU" else "cpu"
    parameters = {name: torch.tensor(value, device=on, requires_grad=True) for name, value in start.items()}
    optimizer = torch.optim.SGD(parameters.values(), RATE)
    xyz, target = torch.tensor(data, device=on), torch.tensor(labels, device=on)
    first: dict[str, np.ndarray] = {}
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(torch_network(parameters, xyz), target)
        loss.backward()
        first = first or {name: value.grad.cpu().numpy().copy() for name, value in parameters.items()}
        optimizer.step()
        losses.append(loss.item())
    return first, losses


class Loss(nn.Cell):
    """Cross-entropy of a network's logits."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__()
        self.network = network

    def construct(self, xyz, target):
        return aten.cross_entropy_loss(self.network(xyz), target)


def main(device: str = "CPU") -> None:
    data, labels = clouds(np.random.default_rng(0), 24)
    # On the CPU the kernels and PyTorch's are the same; sums of CUDA's atomic additions have no fixed order.
    tolerance = 1e-6 if device == "CPU" else 1e-4
    expected = None
    for mode, wrap in modes():
        network = pointnet2.Classifier(np.random.default_rng(1), 3)
        parameters = network.trainable_params()
        start = {parameter.name: parameter.asnumpy().copy() for parameter in parameters}
        if expected is None:
            expected = train_torch(start, data, labels, device)

        step = wrap(ms.value_and_grad(Loss(network), None, parameters))
        optimizer = nn.SGD(parameters, RATE)
        xyz, target = ms.Tensor(data), ms.Tensor(labels)
        losses = []
        for i in range(STEPS):
            loss, gradients = step(xyz, target)
            if i == 0:
                for name, gradient in zip(start, gradients, strict=True):
                    close(f"{mode}: gradient of {name}", gradient, expected[0][name], tolerance)
            optimizer(gradients)
            losses.append(float(loss.asnumpy()))
        close(f"{mode}: losses of {STEPS} steps", np.array(losses), np.array(expected[1]), 10 * tolerance)
        accuracy = float((network(xyz).asnumpy().argmax(1) == labels).mean())
        print(f"{mode}: loss {losses[0]:.3f} -> {losses[-1]:.3f}, {accuracy:.0%} of the clouds are recognised")
        assert losses[-1] < 0.7 * losses[0], "the network did not learn"


if __name__ == "__main__":
    main(device_argument(__doc__))
