"""Two MindSpore AOT kernels, of C++ and of CUDA: a + b, and a * a + b * b with a backward kernel.

Usage:

    python scripts/examples/custom_add/run.py [--device GPU]
"""

from __future__ import annotations

import pathlib
import sys

import mindspore as ms
import numpy as np

from bridge import kernels

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from checking import close, device_argument, modes

HERE = pathlib.Path(__file__).parent

add = kernels.aot(
    HERE / "custom_add.cpp",
    "CustomAdd(Tensor a, Tensor b) -> Tensor",
    results="a",
    gradient="a: grad, b: grad",
    cuda=HERE / "custom_add.cu",
)
add_squares = kernels.aot(
    HERE / "custom_add.cpp",
    "CustomAddSquares(Tensor a, Tensor b) -> Tensor",
    results="a",
    gradient="a, b: CustomAddSquaresGrad(grad, a, b)",
    cuda=HERE / "custom_add.cu",
)


def both(a, b):
    return add(a, add_squares(a, b))


def main() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, (2, 16, 33)) / 4).astype(np.float32)  # exact, where CUDA fuses a product and a sum too
    x, y = ms.Tensor(a), ms.Tensor(b)
    for mode, wrap in modes():
        call = wrap(both)
        grad = wrap(ms.grad(both, grad_position=(0, 1)))
        close(f"{mode}: a + a * a + b * b", call(x, y), a + (a * a + b * b))
        gradient_a, gradient_b = grad(x, y)
        close(f"{mode}: gradient of a", gradient_a, 1 + 2 * a)
        close(f"{mode}: gradient of b", gradient_b, 2 * b)


if __name__ == "__main__":
    device_argument(__doc__)
    main()
