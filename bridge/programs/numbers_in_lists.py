"""`torch.tensor([x, 1.0])`: PyTorch reads the numbers of tensors in a list from their memory, past all modes. A tape
has to see that they are asked for: a parameter's data is not the same in each call, and other tensors have none there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bridge.programs.calls import no_modes
from bridge.programs.replaced import Replacement

_tensor = torch.tensor


def _asking(own: Callable[..., torch.Tensor], name: str, like: int = 0) -> Callable[..., torch.Tensor]:
    """What asks for the numbers, and then calls `own`.

    Args:
        name: of the argument that may be a list.
        like: how many arguments come before it.
    """

    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        data = args[like] if len(args) > like else kwargs.get(name)
        if not isinstance(data, (list, tuple)) or not _has_tensors(data):
            return own(*args, **kwargs)
        if not like and kwargs.get("dtype") is None:
            with no_modes():  # it follows from theirs
                zeros = _tensor(_each(data, lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype)))
            kwargs["dtype"] = zeros.dtype
        kwargs.pop(name, None)
        return own(*args[:like], _each(data, torch.Tensor.item), **kwargs)

    return made


def _has_tensors(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, (list, tuple)) and any(map(_has_tensors, value)))


def _each(value: Any, of: Callable[[torch.Tensor], Any]) -> Any:
    """The value with something else in the place of its tensors."""
    if isinstance(value, (list, tuple)):
        return [_each(item, of) for item in value]
    return of(value) if isinstance(value, torch.Tensor) else value


REPLACEMENTS = [
    *(Replacement(torch, name, _asking(getattr(torch, name), "data")) for name in ("tensor", "as_tensor")),
    Replacement(torch, "asarray", _asking(torch.asarray, "obj")),
    Replacement(torch.Tensor, "new_tensor", _asking(torch.Tensor.new_tensor, "data", 1)),
]
