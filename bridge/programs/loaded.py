"""torch.load while a program is captured: what a file has are constants. PyTorch makes the tensors of a file out of
storages, which are no arguments of a call that a graph takes."""

from __future__ import annotations

import functools
from typing import Any

import torch

from bridge.programs.calls import no_modes
from bridge.programs.replaced import Replacement

_own = torch.load


@functools.wraps(_own)
def _load(*args: Any, **kwargs: Any) -> Any:
    with no_modes():
        return _own(*args, **kwargs)


REPLACEMENTS = [Replacement(holder, "load", _load) for holder in (torch, torch.serialization)]
