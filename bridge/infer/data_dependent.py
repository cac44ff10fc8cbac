"""Which calls give results whose shapes depend on the data, not only on the shapes, dtypes and values that are given.

Every call of some overloads does: the generator gives them no shim (the fact `shape_from_data` in
aten_ops/overloads.yaml, and PyTorch's tag). For others it depends on the call: the rules here tell.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from bridge.infer.trial import Spec
from bridge.op.encoding import Slot, Text
from bridge.op.overload import Overload

_DEPENDS = "the shape of its result depends on the data"

# What a rule takes: the decoded arguments in the schema's order, and shape and dtype of the tensors.
_Rule = Callable[[list[Any], Sequence[Spec]], str]


def _index(values: list[Any], inputs: Sequence[Spec]) -> str:
    masks = (torch.bool, torch.uint8)
    given = [value for value in values[1] if isinstance(value, Slot)]
    return "one of its indices is a mask" if any(inputs[slot.position][1] in masks for slot in given) else ""


def _one_hot(values: list[Any], inputs: Sequence[Spec]) -> str:
    return "num_classes is not given" if values[1] < 0 else ""


def _repeat_interleave(values: list[Any], inputs: Sequence[Spec]) -> str:
    return "output_size is not given" if values[-1] is None else ""


def _lstsq(values: list[Any], inputs: Sequence[Spec]) -> str:
    driver = values[-1]
    if driver not in ("gelsd", "gelss"):
        return ""
    shape = inputs[0][0]
    known = len(shape) >= 2 and min(shape[-2:]) >= 0
    return "" if known and shape[-2] <= shape[-1] else f"{driver} gives residuals where the rank is full"


_RULES: dict[str, _Rule] = {
    "index.Tensor": _index,
    "linalg_lstsq": _lstsq,
    "one_hot": _one_hot,
    "repeat_interleave.Tensor": _repeat_interleave,
    "repeat_interleave.self_Tensor": _repeat_interleave,
}


def always(op: Overload) -> bool:
    """Whether the results are tensors whose shapes depend on the data in every call."""
    return op.schema.is_aten and not op.has_kernel and op.schema.gives_tensors


def sometimes(op: Overload) -> bool:
    """Whether that depends on the call."""
    return op.name in _RULES


def reason(op: Overload, text: Text, inputs: Sequence[Spec]) -> str:
    """Why the shapes of a call's results depend on the data; empty if they follow from what is given.

    Args:
        op, text: the overload and its arguments (bridge/op/encoding.py).
        inputs: shape and dtype of each tensor. In graph mode dimensions may be unknown (-1), and so may the rank
            (a single -2).
    """
    if always(op):
        return _DEPENDS
    return _reason(op.name, text, tuple(inputs)) if op.name in _RULES else ""


@functools.lru_cache(maxsize=4096)
def _reason(name: str, text: Text, inputs: tuple[Spec, ...]) -> str:
    why = _RULES[name](text.values, inputs)
    return f"{_DEPENDS}: {why}" if why else ""
