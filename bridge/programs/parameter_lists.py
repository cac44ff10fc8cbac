"""The Parameters that a user gives: what errors say where they are something else."""

from __future__ import annotations

import functools
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore


def no_parameters(given: Any) -> str:
    """How an error names what was given in place of a list of Parameters, and what to give for a network."""
    advice = ": give net.trainable_params()" if isinstance(given, (ms.nn.Cell, torch.nn.Module)) else ""
    return f"a {type(given).__name__}{advice}"


def refuse_no_parameter(name: str, given: Any) -> None:
    """Raise TypeError, with the name of what takes Parameters, if one of them is none of MindSpore's.

    It is also called for what `mindspore.grad` and `value_and_grad` get, whose own errors come from their C++."""
    if not isinstance(given, ms.Parameter):
        owner = "PyTorch's" if isinstance(given, torch.Tensor) else "a"
        raise TypeError(
            f"{name} takes MindSpore's Parameters, as net.trainable_params() gives them, not "
            f"{owner} {type(given).__name__}"
        )


_mindspore.check_weights(functools.partial(refuse_no_parameter, "mindspore.grad or value_and_grad"))
