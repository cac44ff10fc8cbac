"""Arguments by name that PyTorch's functions share, and what MindSpore makes of them."""

from __future__ import annotations

from typing import Any

import torch

from bridge.operator import Operator
from bridge.primitive.placement import check_device

# NumPy's names, which PyTorch's parser takes too.
_ALIASES = {"axis": "dim", "keepdims": "keepdim"}
TRANSLATED = frozenset(("out", "device", "layout", "requires_grad", "pin_memory", "names", *_ALIASES))


def translated(name: str, kwargs: dict[str, Any], operator: Operator | None) -> dict[str, Any]:
    """The arguments without those that say what is so anyway.

    Args:
        name: of the function.
        operator: the operator that takes the arguments, if it is one, as PyTorch's own parser does.

    Raises:
        TypeError, ValueError: one asks for what MindSpore does not have.
    """
    if TRANSLATED.isdisjoint(kwargs):
        return kwargs
    found = {}
    for key, value in kwargs.items():
        if operator is not None and key in _ALIASES and not operator.has_argument(key):
            if _ALIASES[key] in kwargs:
                raise TypeError(f"{name}() got both {_ALIASES[key]} and {key}, which is another name for it")
            found[_ALIASES[key]] = value
        elif key in TRANSLATED and key not in _ALIASES:
            _check(name, key, value)
        else:
            found[key] = value
    return found


def _check(name: str, key: str, value: Any) -> None:
    if value is None or value is False:
        return
    if key == "out":
        raise TypeError(f"{name}: out= is not supported: MindSpore allocates the results")
    if key == "requires_grad":
        raise ValueError(
            f"{name}: requires_grad=True is not supported: mindspore.grad names what it differentiates, and a "
            "mindspore.Parameter is what an optimizer trains"
        )
    if key == "pin_memory":
        raise ValueError(f"{name}: pinned memory is not supported")
    if key == "names":
        raise ValueError(f"{name}: MindSpore's tensors have no named dimensions")
    if key == "layout" and value not in (torch.strided, "strided"):
        raise ValueError(f"{name}: layout {value} is not supported: MindSpore's tensors are strided")
    if key == "device":
        check_device(name, value)
