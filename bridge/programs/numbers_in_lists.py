"""`torch.tensor([x, 1.0])`: PyTorch reads the numbers of tensors in a list from their memory, past all modes. A tape
has to see that they are asked for: a parameter's data is not the same in each call, and other tensors have none there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bridge.programs.calls import no_modes
from bridge.programs.replaced import Replacement

_tensor, _new_tensor = torch.tensor, torch.Tensor.new_tensor


def _asking(own: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(data: Any, **kwargs: Any) -> torch.Tensor:
        if isinstance(data, (list, tuple)) and _has_tensors(data):
            if kwargs.get("dtype") is None:
                with no_modes():  # it follows from theirs
                    like = _tensor(_each(data, lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype)))
                kwargs["dtype"] = like.dtype
            data = _each(data, torch.Tensor.item)
        return own(data, **kwargs)

    return made


def _new(tensor: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
    is_read = isinstance(data, (list, tuple)) and _has_tensors(data)
    return _new_tensor(tensor, _each(data, torch.Tensor.item) if is_read else data, **kwargs)


def _has_tensors(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, (list, tuple)) and any(map(_has_tensors, value)))


def _each(value: Any, of: Callable[[torch.Tensor], Any]) -> Any:
    """The value with something else in the place of its tensors."""
    if isinstance(value, (list, tuple)):
        return [_each(item, of) for item in value]
    return of(value) if isinstance(value, torch.Tensor) else value


REPLACEMENTS = [
    *(Replacement(torch, name, _asking(getattr(torch, name))) for name in ("tensor", "as_tensor", "asarray")),
    Replacement(torch.Tensor, "new_tensor", _new),
]
