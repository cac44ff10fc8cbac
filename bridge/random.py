"""Seeds: random operators draw from PyTorch's default generator."""
from __future__ import annotations

import importlib
from typing import Any

import mindspore as ms
import mindspore.dataset
import torch
from mindspore.ops.primitive import _pynative_executor


def manual_seed(seed: int) -> None:
    """Seed the random operators: from here on they draw what PyTorch draws after `torch.manual_seed(seed)`.

    `mindspore.set_seed` does this too.
    """
    _pynative_executor.sync()  # draws that were asked for before come from the old seed
    torch.manual_seed(seed)


def follow_set_seed() -> None:
    """Make `mindspore.set_seed` seed the random operators.

    MindSpore has no hook for that. `set_seed` resets the seeds of its own kernels through this one function, after it
    has handed the seed to `mindspore.dataset`.
    """
    seeds: Any = importlib.import_module("mindspore.common.seed")  # mindspore.common has a function of that name
    reset_kernels = seeds._reset_op_seed

    def reset() -> None:
        reset_kernels()
        manual_seed(ms.dataset.config.get_seed())

    seeds._reset_op_seed = reset
