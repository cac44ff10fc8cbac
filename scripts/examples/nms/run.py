"""Non-maximum suppression: an operator registered with PyTorch, whose result has a size that depends on the data.

Usage:

    python scripts/examples/nms/run.py [--device GPU]
"""

from __future__ import annotations

import pathlib
import sys

import mindspore as ms
import numpy as np

from bridge import aten, kernels

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from checking import close, device_argument

HERE = pathlib.Path(__file__).parent

nms = kernels.registered("detection::nms", HERE / "nms.cpp", cuda=HERE / "nms.cu")


def reference(boxes: np.ndarray, scores: np.ndarray, threshold: float) -> np.ndarray:
    """The same with NumPy, from the definition."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        low = np.maximum(boxes[i, :2], boxes[kept, :2])
        high = np.minimum(boxes[i, 2:], boxes[kept, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        if not np.any(shared / (areas[i] + areas[kept] - shared) > threshold):
            kept.append(i)
    return np.array(kept, np.int64)


def best_score(boxes: ms.Tensor, scores: ms.Tensor) -> ms.Tensor:
    """The sum of the kept boxes' scores: the gradient reaches the scores past nms, which has none itself."""
    return aten.index_select(scores, 0, nms(boxes, scores, 0.5)).sum()


def main() -> None:
    rng = np.random.default_rng(0)
    for count in (200, 20, 0):
        corners = rng.uniform(0, 10, (count, 2)).astype(np.float32)
        boxes = np.concatenate([corners, corners + rng.uniform(1, 4, (count, 2)).astype(np.float32)], axis=1)
        scores = rng.uniform(0, 1, count).astype(np.float32)
        expected = reference(boxes, scores, 0.5)
        close(f"{count} boxes, {len(expected)} kept", nms(ms.Tensor(boxes), ms.Tensor(scores), 0.5), expected)
        if count:
            gradient = ms.grad(best_score, grad_position=1)(ms.Tensor(boxes), ms.Tensor(scores))
            close(f"{count} boxes: gradient of the scores", gradient, np.isin(np.arange(count), expected).astype("f"))


if __name__ == "__main__":
    device_argument(__doc__)
    main()
