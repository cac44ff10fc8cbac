"""What several tests use."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

from bridge.op import devices

# A function as it is in PyNative mode, and compiled. The fixture `mode` in conftest.py gives one after the other.
MODES = {"pynative": lambda function: function, "graph": ms.jit}
modes = pytest.mark.parametrize("wrap", MODES.values(), ids=["PyNative", "graph"])


def data(*shape: int, seed: int = 0) -> np.ndarray:
    """Random values, the same each time."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def class_at_sync(kind: type[BaseException]) -> tuple[type[BaseException], ...]:
    """What an error of a launch is when it comes: that of a GPU's launch is a RuntimeError of MindSpore's if it comes
    later than the call."""
    return (kind, RuntimeError) if devices.target() == "GPU" else (kind,)


def torch_device() -> str:
    """PyTorch's name of the device that MindSpore is on."""
    return devices.torch_name(devices.target())


def on_device(array: np.ndarray, requires_grad: bool = False) -> torch.Tensor:
    """An array as PyTorch's tensor on that device."""
    return torch.tensor(array, device=torch_device(), requires_grad=requires_grad)


class FailsInBackward(torch.nn.Module):
    """A module whose gradient raises ZeroDivisionError."""

    class _Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            raise ZeroDivisionError("mine")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._Function.apply(x)
