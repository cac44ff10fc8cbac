"""On GPU, what fails at launch reaches the caller with the operator's name and PyTorch's words; the process goes on.

Usage:

    pytest tests/test_gpu_errors.py --device GPU
"""

from __future__ import annotations

import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest

from bridge import aten

pytestmark = pytest.mark.gpu

X = ms.Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))


def fine() -> None:
    np.testing.assert_array_equal(aten.add(X, 1).asnumpy(), X.asnumpy() + 1)


def test_out_of_memory() -> None:
    """The result is small; PyTorch wants more memory than any card has on the way to it."""
    column = ms.Tensor(np.zeros((1 << 21, 1), np.float32))
    row = ms.Tensor(np.zeros((1, 1 << 21), np.float32))
    with pytest.raises(RuntimeError, match=r"aten\.mse_loss: CUDA out of memory"):
        aten.mse_loss(column, row).asnumpy()
    fine()


def test_a_kernel_that_does_not_exist() -> None:
    """Meta inference has no objection to this dtype; CUDA has no kernel for it."""
    with pytest.raises(RuntimeError, match=r"aten\._?linalg_eigh"):
        aten.linalg_eigh(ms.Tensor(np.eye(3), ms.float16))[0].asnumpy()
    fine()


def test_a_shape_is_refused_at_the_call() -> None:
    with pytest.raises(RuntimeError, match=r"aten\.mm"):
        aten.mm(X, X)
    fine()


def test_data_dependent_shapes() -> None:
    x = ms.Tensor([[0.0, -1.0], [2.0, 0.0]])
    np.testing.assert_array_equal(aten.nonzero(x).asnumpy(), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(aten.masked_select(x, x > 0).asnumpy(), [2.0])
    assert aten.equal(x, x) is True
    assert aten.item(aten.sum(x)) == 1.0


def test_blocking_launches() -> None:
    """With MindSpore's ms.runtime.launch_blocking() each launch is waited for, in a process of its own."""
    code = (
        "import mindspore as ms; ms.set_device('GPU'); ms.runtime.launch_blocking(); from bridge import aten;"
        "x = ms.Tensor([-1.0, 2.0]); print(aten.leaky_relu(x, 0.5).asnumpy().tolist());"
        "print(ms.grad(lambda x: aten.leaky_relu(x, 0.5))(x).asnumpy().tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-2:] == ["[-0.5, 2.0]", "[0.5, 1.0]"], done.stderr
