"""Several GPUs: operators run on the one that MindSpore's data is on, whichever is PyTorch's current one.

Usage:

    pytest tests/test_gpu_devices.py --device GPU
"""

from __future__ import annotations

import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge import aten

pytestmark = pytest.mark.gpu

X = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_second_gpu() -> None:
    """A process keeps the device that it has, so this is one of its own."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all equal"


def network(x: ms.Tensor) -> ms.Tensor:
    y = aten.layer_norm(aten.matmul(aten.leaky_relu(x, 0.1), x), [64])
    return aten.dropout(aten.softmax(y, -1), 0.5, True)


def torch_network(x: torch.Tensor) -> torch.Tensor:
    op = torch.ops.aten
    y = op.layer_norm(op.matmul(op.leaky_relu(x, 0.1), x), [64])
    return op.dropout(op.softmax(y, -1), 0.5, True)


def main() -> None:
    assert torch.cuda.current_device() == 0
    ms.set_device("GPU", 1)
    reference = torch.tensor(X, device="cuda:1", requires_grad=True)
    for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
        ms.set_context(mode=mode)
        bridge.manual_seed(7)
        value, gradient = (result.asnumpy() for result in ms.value_and_grad(network)(ms.Tensor(X)))
        torch.manual_seed(7)
        wanted = torch_network(reference)
        (wanted_gradient,) = torch.autograd.grad(wanted.sum(), reference)
        np.testing.assert_array_equal(value, wanted.detach().cpu().numpy())
        np.testing.assert_array_equal(gradient, wanted_gradient.cpu().numpy())
    ms.set_context(mode=ms.PYNATIVE_MODE)
    x = ms.Tensor(X)
    wanted = torch.ops.aten.nonzero(reference.detach() > 0)
    np.testing.assert_array_equal(aten.nonzero(x > 0).asnumpy(), wanted.cpu().numpy())
    wanted = torch.ops.aten.leaky_relu(torch.tensor(X), 0.1)
    np.testing.assert_array_equal(aten.leaky_relu.on_cpu(x, 0.1).asnumpy(), wanted.numpy())
    long_rows = np.random.default_rng(1).standard_normal((5, 4096)).astype(np.float32)
    wanted = torch.ops.aten.softmax(torch.tensor(long_rows, device="cuda:1"), -1)
    np.testing.assert_array_equal(aten.softmax(ms.Tensor(long_rows), -1).asnumpy(), wanted.cpu().numpy())
    with pytest.raises(ValueError, match="cuda:0 is not MindSpore's device, which is cuda:1"):
        aten.zeros([2], device="cuda:0")
    assert torch.cuda.memory_allocated(0) == 0
    print("all equal")


if __name__ == "__main__":
    main()
