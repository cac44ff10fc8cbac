"""`x.requires_grad = True`, as Wav2Vec2 writes it for a checkpoint. PyTorch takes it for leaves only.

In a program every floating input requires a gradient, because MindSpore may ask for it. What follows from an input is
no leaf then, and has what is asked for.
"""

from __future__ import annotations

import dis
import functools
import inspect
from typing import Any

import torch

from bridge.programs.replaced import Replacement

_NAME = "requires_grad"
_own: Any = torch._C.TensorBase.requires_grad


def _set(tensor: torch.Tensor, value: bool) -> None:
    if not (value and tensor.requires_grad and not tensor.is_leaf):
        _own.__set__(tensor, value)


REPLACEMENT = Replacement(torch.Tensor, _NAME, property(_own.__get__, _set))  # type: ignore[arg-type]


def set_it(modules: list[torch.nn.Module]) -> bool:
    """Whether a class of these modules writes so."""
    kinds: set[type] = {type(module) for module in modules}
    return any(map(_writes, kinds))


@functools.cache
def _writes(kind: type) -> bool:
    codes = [member.__code__ for member in vars(kind).values() if inspect.isfunction(member)]
    named = [code for code in codes if _NAME in code.co_names]
    return any(
        step.opname == "STORE_ATTR" and step.argval == _NAME for code in named for step in dis.get_instructions(code)
    )
