"""An operator of one's own, registered with PyTorch: schema, kernels, meta function, error checks and derivative.

gdh is a divisive normalisation after Heeger's model of visual cortex; gdh.cpp has the formula.

    python scripts/examples/gdh/run.py [--device GPU]
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

gdh = kernels.registered("heeger::gdh", [HERE / "gdh.cpp", HERE / "gdh_cpu.cpp"], cuda=HERE / "gdh_cuda.cu")


def weighted(x, gamma, beta, weight):
    return (gdh(x, gamma, beta) * weight).sum()


def reference(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """The same of PyTorch's operators."""
    h = torch.relu(x) ** 2
    shape = (1, -1, *[1] * (x.dim() - 2))
    return h / (beta.view(shape) + torch.einsum("ck,nk...->nc...", gamma, h))


def main() -> None:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((3, 6, 5, 4))
    gamma, beta = rng.uniform(0.1, 1, (6, 6)), rng.uniform(0.5, 1, 6)
    weight = rng.standard_normal(data.shape)
    leaves = [torch.tensor(value, requires_grad=True) for value in (data, gamma, beta)]
    expected = reference(*leaves)
    (expected * torch.tensor(weight)).sum().backward()
    inputs = [ms.Tensor(value) for value in (data, gamma, beta)]
    for mode, wrap in modes():
        # The order of the sums differs.
        close(
            f"{mode}: gdh",
            wrap(weighted)(*inputs, ms.Tensor(weight)),
            (expected * torch.tensor(weight)).sum().detach().numpy(),
            1e-14,
        )
        gradients = wrap(ms.grad(weighted, grad_position=(0, 1, 2)))(*inputs, ms.Tensor(weight))
        for name, found, leaf in zip(("x", "gamma", "beta"), gradients, leaves, strict=True):
            close(f"{mode}: gradient of {name}", found, leaf.grad.numpy(), 1e-13)
    try:
        gdh(inputs[0], inputs[1], inputs[1])
    except RuntimeError as error:
        print(f"a wrong argument: {error}")
    else:
        raise AssertionError("a wrong beta was not refused")


if __name__ == "__main__":
    device_argument(__doc__)
    main()
