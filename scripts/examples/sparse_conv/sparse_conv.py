"""A sparse convolution of point clouds in MindSpore: operators from C++ and CUDA, and what is built of them."""

from __future__ import annotations

import itertools
import pathlib
from dataclasses import dataclass

import mindspore as ms
import numpy as np
import torch

from bridge import aten, kernels

HERE = pathlib.Path(__file__).parent
SOURCES = {"sources": HERE / "sparse_conv.cpp", "cuda": HERE / "sparse_conv.cu"}


def _keys(coordinates, offsets):
    sizes = coordinates.shape[:1] if offsets is None else (offsets.shape[0], coordinates.shape[0])
    return coordinates.new_empty(sizes, dtype=torch.int64)


hash_coordinates = kernels.extension(
    schema="hash_coordinates(Tensor coordinates, Tensor? offsets=None) -> Tensor", results=_keys, **SOURCES
)
# It adds to its output, which therefore starts as zeros.
voxelize = kernels.extension(
    schema="voxelize(Tensor features, Tensor voxel, Tensor counts, *, Tensor(a!) out) -> ()",
    initial="zeros",
    results=lambda features, voxel, counts: features.new_empty(counts.shape[0], features.shape[1]),
    gradient="features: voxelize_backward(grad, voxel, counts)",
    **SOURCES,
)
devoxelize = kernels.extension(
    schema="devoxelize(Tensor features, Tensor corners, Tensor weight) -> Tensor",
    results=lambda features, corners, weight: features.new_empty(corners.shape[0], features.shape[1]),
    gradient="features: devoxelize_backward(grad, corners, weight, features), weight: not_differentiable",
    **SOURCES,
)

NEIGHBOURS = np.array(list(itertools.product((-1, 0, 1), repeat=3)), np.int32)
CORNERS = np.array(list(itertools.product((0, 1), repeat=3)), np.int32)


@dataclass
class Voxels:
    """How points and voxels belong together. The number of voxels, m, follows from the points."""

    voxel: ms.Tensor
    """Each point's voxel, int64 (n)."""
    counts: ms.Tensor
    """How many points each voxel has, int64 (m)."""
    neighbours: ms.Tensor
    """For each of the 27 places around each voxel, the voxel that is there, or m for none: int64 (27, m)."""
    corners: ms.Tensor
    """The eight voxels around each point, or -1 for none: int64 (n, 8)."""
    weight: ms.Tensor
    """What each of these counts for the point, in the points' dtype (n, 8)."""


def find(keys: ms.Tensor, sought: ms.Tensor, absent: int) -> ms.Tensor:
    """Where each sought key is among the sorted keys; `absent` if it is not there."""
    last = keys.shape[0] - 1
    place = aten.clamp(aten.searchsorted(keys, sought), 0, last)
    there = aten.eq(aten.take(keys, place), sought)
    return aten.where(there, place, aten.full_like(place, absent))


def voxels_of(points: np.ndarray, size: float) -> Voxels:
    """Sort points (n, 4), of rows (batch, x, y, z), into voxels of this size. In PyNative mode: the shapes follow."""
    scaled = points[:, 1:] / size
    corner = np.floor(scaled)
    coordinates = np.concatenate([points[:, :1], corner], axis=1).astype(np.int32)
    point_keys = hash_coordinates(ms.Tensor(coordinates))
    keys, voxel, counts = aten._unique2(point_keys, True, True, True)
    _, first = np.unique(voxel.asnumpy(), return_index=True)
    voxel_coordinates = ms.Tensor(coordinates[first])
    neighbours = find(keys, hash_coordinates(voxel_coordinates, ms.Tensor(NEIGHBOURS)), keys.shape[0])
    corners = find(keys, hash_coordinates(ms.Tensor(coordinates), ms.Tensor(CORNERS)), -1)
    part = (scaled - corner)[:, None, :]
    weight = np.where(CORNERS[None] == 1, part, 1 - part).prod(axis=2).astype(points.dtype)
    return Voxels(voxel, counts, neighbours, aten.transpose(corners, 0, 1), ms.Tensor(weight))


def convolve(features, neighbours, weight):
    """features (m, c), neighbours (27, m), weight (27, c, c') -> (m, c')."""
    padded = aten.constant_pad_nd(features, [0, 0, 0, 1])
    gathered = aten.index_select(padded, 0, aten.flatten(neighbours))
    stacked = aten.reshape(gathered, [neighbours.shape[0], neighbours.shape[1], features.shape[1]])
    return aten.sum(aten.bmm(stacked, weight), [0])


def layer(features, weight, voxel, counts, neighbours, corners, corner_weight):
    """Features of points (n, c) -> (n, c'): to voxels, convolved there, and back."""
    means = voxelize(features, voxel, counts)
    return devoxelize(convolve(means, neighbours, weight), corners, corner_weight)
