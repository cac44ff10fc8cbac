"""A sparse convolution of a point cloud: hash, voxelize, convolve, devoxelize, and their gradients.

Usage:

    python scripts/examples/sparse_conv/run.py [--device GPU]
"""

from __future__ import annotations

import pathlib
import sys

import mindspore as ms
import numpy as np
import torch

sys.path += [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent)]
import sparse_conv
from checking import close, device_argument, modes


def weighted(features, weight, voxel, counts, neighbours, corners, corner_weight, factors):
    out = sparse_conv.layer(features, weight, voxel, counts, neighbours, corners, corner_weight)
    return (out * factors).sum()


def reference(points: np.ndarray, size: float, features: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The layer in PyTorch, from dictionaries of voxels rather than hashes."""
    corner = np.floor(points[:, 1:] / size)
    coordinates = [tuple(row) for row in np.concatenate([points[:, :1], corner], axis=1).astype(int)]
    place = {voxel: i for i, voxel in enumerate(dict.fromkeys(coordinates))}
    voxel = torch.tensor([place[key] for key in coordinates])
    total = features.new_zeros(len(place), features.shape[1]).index_add(0, voxel, features)
    means = total / torch.bincount(voxel)[:, None]
    convolved = torch.zeros(len(place), weight.shape[2], dtype=features.dtype)
    for k, offset in enumerate(sparse_conv.NEIGHBOURS):
        pairs = [
            (place[moved], i)
            for (b, x, y, z), i in place.items()
            if (moved := (b, x + offset[0], y + offset[1], z + offset[2])) in place
        ]
        if pairs:
            source, target = torch.tensor(pairs).T
            convolved = convolved.index_add(0, target, means[source] @ weight[k])
    part = torch.tensor(points[:, 1:] / size - corner)
    out = torch.zeros(len(points), weight.shape[2], dtype=features.dtype)
    for offset in sparse_conv.CORNERS:
        share = torch.where(torch.tensor(offset == 1), part, 1 - part).prod(dim=1)
        pairs = [
            (i, place[moved])
            for i, (b, x, y, z) in enumerate(coordinates)
            if (moved := (b, x + offset[0], y + offset[1], z + offset[2])) in place
        ]
        target, source = torch.tensor(pairs).T
        out = out.index_add(0, target, share[target, None] * convolved[source])
    return out


def main() -> None:
    rng = np.random.default_rng(0)
    count, size = 300, 0.5
    points = np.concatenate([rng.integers(0, 2, (count, 1)), rng.uniform(-1, 1, (count, 3))], axis=1)
    data, weight = rng.standard_normal((count, 4)), rng.standard_normal((27, 4, 5))
    factors = rng.standard_normal((count, 5))
    leaves = [torch.tensor(value, requires_grad=True) for value in (data, weight)]
    expected = reference(points, size, *leaves)
    (expected * torch.tensor(factors)).sum().backward()

    found = sparse_conv.voxels_of(points, size)
    print(f"{count} points are in {found.counts.shape[0]} voxels")
    inputs = [
        ms.Tensor(data),
        ms.Tensor(weight),
        found.voxel,
        found.counts,
        found.neighbours,
        found.corners,
        found.weight,
    ]
    for mode, wrap in modes():
        # The order of the sums differs.
        close(f"{mode}: layer", wrap(sparse_conv.layer)(*inputs), expected.detach().numpy(), 1e-13)
        gradients = wrap(ms.grad(weighted, grad_position=(0, 1)))(*inputs, ms.Tensor(factors))
        for name, gradient, leaf in zip(("features", "weight"), gradients, leaves, strict=True):
            close(f"{mode}: gradient of the {name}", gradient, leaf.grad.numpy(), 1e-13)


if __name__ == "__main__":
    device_argument(__doc__)
    main()
