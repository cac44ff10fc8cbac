"""What the examples share: the device, both modes of MindSpore, and comparisons."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import numpy as np


def device_argument(description: str | None) -> str:
    """Set MindSpore's device from `--device`; returns it, "CPU" or "GPU"."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU")
    device = parser.parse_args().device
    ms.set_device(device)
    return device


def modes() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """The name of each mode, and what makes a function run in it."""
    yield "PyNative", lambda function: function
    yield "graph", ms.jit


def close(what: str, found: Any, expected: Any, tolerance: float = 0.0) -> None:
    """Print the largest difference.

    Args:
        what: what is compared.
        found: a result of MindSpore's, or an array.
        expected: an array.
        tolerance: relative to the largest absolute value that is expected; 0 asks for the same bits.

    Raises:
        AssertionError: the difference is above the tolerance, or shape or dtype differ.
    """
    result = found.asnumpy() if isinstance(found, ms.Tensor) else np.asarray(found)
    reference = np.asarray(expected)
    assert result.shape == reference.shape, f"{what}: shape {result.shape}, not {reference.shape}"
    assert result.dtype == reference.dtype, f"{what}: {result.dtype}, not {reference.dtype}"
    difference = 0.0
    if result.size:
        scale = max(float(np.abs(reference).max()), 1e-30)
        difference = float(np.abs(result.astype(np.float64) - reference.astype(np.float64)).max()) / scale
    print(f"{what}: largest relative difference {difference:.1e}")
    assert difference <= tolerance, f"{what} differs by {difference}, more than {tolerance}"
