"""A PyTorch extension with a forward and a backward kernel, in C++ and CUDA.

Usage:

    python scripts/examples/sigmoid/run.py [--device GPU]
"""

from __future__ import annotations

import pathlib
import sys

import mindspore as ms
import numpy as np
import torch

from bridge import kernels

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from checking import close, device_argument, modes

HERE = pathlib.Path(__file__).parent

sigmoid = kernels.extension(
    HERE / "sigmoid.cpp",
    "sigmoid(Tensor x) -> Tensor",
    results="x",
    gradient="x: sigmoid_backward(grad, result)",
    cuda=HERE / "sigmoid.cu",
)


def forward(x):
    return sigmoid(x)


def weighted(x, weight):
    return (sigmoid(x) * weight).sum()


def main() -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        data, weight = rng.standard_normal((2, 5, 77)).astype(dtype)
        x = torch.tensor(data, requires_grad=True)
        (torch.sigmoid(x) * torch.tensor(weight)).sum().backward()
        expected = x.grad.numpy()
        # PyTorch's own kernel is vectorized and rounds its exp otherwise.
        tolerance = 1e-6 if dtype == np.float32 else 1e-15
        for mode, wrap in modes():
            result = wrap(forward)(ms.Tensor(data))
            close(f"{mode}, {dtype.__name__}: sigmoid", result, torch.sigmoid(x).detach().numpy(), tolerance)
            gradient = wrap(ms.grad(weighted))(ms.Tensor(data), ms.Tensor(weight))
            close(f"{mode}, {dtype.__name__}: gradient", gradient, expected, tolerance)


if __name__ == "__main__":
    device_argument(__doc__)
    main()
