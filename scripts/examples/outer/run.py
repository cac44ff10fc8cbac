"""The batched outer product (b, n) x (b, m) -> (b, n, m): a PyTorch extension whose gradient is a Python function.

Usage:

    python scripts/examples/outer/run.py [--device GPU]
"""

from __future__ import annotations

import pathlib
import statistics
import sys
import time

import mindspore as ms
import numpy as np
import torch

from bridge import aten, kernels

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from checking import close, device_argument, modes

HERE = pathlib.Path(__file__).parent


def gradient(x, y, out, dout):
    """Two products. They are operators, so they have gradients too."""
    grad_x = aten.squeeze(aten.bmm(dout, aten.unsqueeze(y, 2)), 2)
    grad_y = aten.squeeze(aten.bmm(aten.unsqueeze(x, 1), dout), 1)
    return grad_x, grad_y


outer = kernels.extension(
    HERE / "outer.cpp",
    "outer(Tensor x, Tensor y) -> Tensor",
    results=lambda x, y: x.new_empty(x.shape[0], x.shape[1], y.shape[1]),
    gradient=gradient,
    cuda=HERE / "outer.cu",
)


def forward(x, y):
    return outer(x, y)


def weighted(x, y, weight):
    return (outer(x, y) * weight).sum()


def squared_gradient(x, y, weight):
    return (ms.grad(weighted)(x, y, weight) ** 2).sum()


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x[:, :, None] * y[:, None, :]


def microseconds(call, wait, repeats: int = 20) -> float:
    """The median time of a call, after a warm-up; `wait` returns when its result is there."""
    for _ in range(5):
        wait(call())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        wait(call())
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main() -> None:
    rng = np.random.default_rng(0)
    for dtype in (torch.float16, torch.float32, torch.float64):
        arrays = [torch.tensor(rng.standard_normal(shape)).to(dtype) for shape in ((4, 7), (4, 5), (4, 7, 5))]
        inputs = [ms.Tensor(array.numpy()) for array in arrays]
        x, y, weight = (array.requires_grad_() for array in arrays)
        grad_x, grad_y = torch.autograd.grad((reference(x, y) * weight).sum(), (x, y), create_graph=True)
        (second,) = torch.autograd.grad((grad_x**2).sum(), y)
        # PyTorch's gradient of the broadcast sums in another order.
        tolerance = 10 * torch.finfo(dtype).eps
        for mode, wrap in modes():
            title = f"{mode}, {str(dtype).removeprefix('torch.')}"
            close(f"{title}: outer", wrap(forward)(*inputs[:2]), reference(x, y).detach().numpy())
            gradients = wrap(ms.grad(weighted, grad_position=(0, 1)))(*inputs)
            close(f"{title}: gradient of x", gradients[0], grad_x.detach().numpy(), tolerance)
            close(f"{title}: gradient of y", gradients[1], grad_y.detach().numpy(), tolerance)
            found = wrap(ms.grad(squared_gradient, grad_position=1))(*inputs)
            close(f"{title}: second order", found, second.numpy(), tolerance)


def compare_times(device: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((32, 512)).astype(np.float32) for _ in range(2))
    ms_x, ms_y = ms.Tensor(x), ms.Tensor(y)
    on = "cuda" if device == "GPU" else "cpu"
    torch_x, torch_y = torch.tensor(x, device=on), torch.tensor(y, device=on)
    if device == "GPU":
        bridge_time = microseconds(lambda: outer(ms_x, ms_y), lambda _: ms.runtime.synchronize())
        torch_time = microseconds(lambda: reference(torch_x, torch_y), lambda _: torch.cuda.synchronize())
    else:
        bridge_time = microseconds(lambda: outer(ms_x, ms_y), ms.Tensor.asnumpy)
        torch_time = microseconds(lambda: reference(torch_x, torch_y), torch.Tensor.numpy)
    print(f"(32, 512) x (32, 512): outer takes {bridge_time / torch_time:.2f} of the time of PyTorch's product")


if __name__ == "__main__":
    chosen = device_argument(__doc__)
    main()
    compare_times(chosen)
