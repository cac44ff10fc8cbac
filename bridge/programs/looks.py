"""Whether the function's own code looks at sizes that data decides, as `if len(x[mask]) == 7`: what it does then may
follow from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from bridge.programs.kept_elsewhere import is_own
from bridge.programs.replaced import Replacement, caller

LARGE = 20_011
"""What sizes are taken to be in a run that finds out. Others are smaller."""


def replacements(look: Callable[[], None], size: Callable[..., Any]) -> list[Replacement]:
    """Of what gives sizes of tensors: calls `look` where one is such a size, or follows from it.

    Args:
        size: what stands for Tensor.size.
    """

    def noted(own: Any) -> Callable[..., Any]:
        def method(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            found = own(tensor, *args, **kwargs)
            sizes = found if isinstance(found, Sequence) else [found]
            if any(2 * size >= LARGE for size in sizes) and is_own(caller().f_code.co_filename):
                look()
            return found

        return method

    names = "__len__", "nelement", "numel"
    methods = [Replacement(torch.Tensor, name, noted(getattr(torch.Tensor, name))) for name in names]
    methods.append(Replacement(torch.Tensor, "size", noted(size)))
    shape: Any = torch.Tensor.shape
    return [
        *methods,
        Replacement(torch, "numel", noted(torch.numel)),
        Replacement(torch.Tensor, "shape", property(noted(shape.__get__), shape.__set__)),
    ]
