"""PyTorch's ATen operators, callable inside MindSpore, in PyNative and graph mode.

import mindspore as ms
from bridge import aten

x = ms.Tensor([[0.0, -0.1], [-0.2, 1.0]], ms.float32)
aten.leaky_relu(x, 0.01)
"""

from bridge import _versions

_versions.check()

from bridge import aten, kernels, nn, optim, torch  # noqa: E402
from bridge._start import manual_seed  # noqa: E402
from bridge.programs import cell, fuse, value_and_grad  # noqa: E402

__all__ = ["aten", "cell", "fuse", "kernels", "manual_seed", "nn", "optim", "torch", "value_and_grad"]
__version__ = "0.1.0"
