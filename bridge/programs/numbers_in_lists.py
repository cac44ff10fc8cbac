"""`torch.tensor([x, 1.0])`, `table[:, [x, 1]]`: PyTorch asks the tensors in a list for their numbers past all modes.
`torch.tensor_split` does so with the tensor that says where. A tape has to see that: a parameter's data is not the same
in each call, and other tensors have none there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bridge.programs.replaced import Replacement

# What the dispatcher calls modes.
_MODES = torch._C.DispatchKeySet(torch._C.DispatchKey.Python) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.PythonTLSSnapshot
)


def _asking(name: str) -> Callable[[torch.Tensor], Any]:
    """The method of a tensor that gives its number, for modes to see."""
    own = getattr(torch.Tensor, name)

    def number(tensor: torch.Tensor) -> Any:
        included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
        with torch._C._ForceDispatchKeyGuard(included, excluded - _MODES):
            return own(tensor)

    return number


def _splitting(own: Callable[..., Any]) -> Callable[..., Any]:
    """`tensor_split`, given numbers where it is given a tensor that has them."""
    name = "tensor_indices_or_sections"

    def split(*args: Any, **kwargs: Any) -> Any:
        tensor, *others = (kwargs.pop("input"), *args) if "input" in kwargs else args
        where = others[0] if others else kwargs.get(name)
        if isinstance(where, torch.Tensor) and where.dtype == torch.int64 and where.dim() < 2 and where.is_cpu:
            kwargs.pop(name, None)
            others = [where.tolist(), *others[1:]]
        return own(tensor, *others, **kwargs)

    return split


_METHODS = "__float__", "__index__", "__complex__"

REPLACEMENTS = [
    *(Replacement(torch.Tensor, name, _asking(name)) for name in _METHODS),
    *(Replacement(holder, "tensor_split", _splitting(holder.tensor_split)) for holder in (torch, torch.Tensor)),
]
