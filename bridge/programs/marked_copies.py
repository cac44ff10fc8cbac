"""Copies of what a mask marks: `distance[mask] = dist[mask]`, as farthest-point sampling has them.

PyTorch takes the marked elements as a tensor whose size depends on data, and puts them. Where the statement does
nothing else with that tensor, a graph copies what is marked and needs no size.
"""

from __future__ import annotations

import dis
import functools
import itertools
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from bridge.programs.size_numbers import instruction
from bridge.programs.wrong_on_meta import MASK_DTYPES

_VARIABLES = {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_GLOBAL", "LOAD_NAME"}


class _Taken(NamedTuple):
    """What is taken, and the empty tensor that stands for it until it is put."""

    tensor: torch.Tensor
    mask: torch.Tensor
    stands_in: torch.Tensor


class MarkedCopies:
    """Those of one run.

    Args:
        is_known: whether a tensor has data that is the same in each call.
    """

    def __init__(self, is_known: Callable[[torch.Tensor], bool]) -> None:
        self._is_known = is_known
        self._taken: _Taken | None = None

    def take(self, tensor: torch.Tensor, index: Any, frame: FrameType) -> torch.Tensor | None:
        """What stands for `tensor[index]` in that frame, if it is only copied; else None."""
        if not isinstance(index, torch.Tensor) or index.dtype not in MASK_DTYPES or not index.dim():
            return None
        place = _copied_to(frame)
        if (
            not isinstance(place, torch.Tensor)
            or (place.shape, place.dtype, place.device) != (tensor.shape, tensor.dtype, tensor.device)
            or any(step == 0 and size > 1 for step, size in zip(place.stride(), place.shape, strict=True))
            or index.shape != tensor.shape[: index.dim()]
            or index.device != tensor.device
            or torch._C._functorch.peek_interpreter_stack() is not None
            or torch.autograd.forward_ad._current_level >= 0
            or self._is_known(index)
        ):
            return None
        self._taken = _Taken(tensor, index, torch.empty(0, dtype=tensor.dtype, device=tensor.device))
        return self._taken.stands_in

    def put(self, tensor: torch.Tensor, value: Any) -> bool:
        """Whether `tensor[index] = value` is such a copy. Then it is made."""
        taken, self._taken = self._taken, None
        if taken is None or value is not taken.stands_in:
            return False
        rest = [1] * (tensor.dim() - taken.mask.dim())
        _Copied.apply(tensor, taken.tensor, taken.mask.view(*taken.mask.shape, *rest).bool())
        return True


def _copied_to(frame: FrameType) -> Any:
    """The `x` of a statement `x[mask] = y[mask]` that is taking `y[mask]`; None if it is another one."""
    found = _copies(frame.f_code).get(instruction(frame))
    if found is None:
        return None
    name, *attributes = found
    spaces = frame.f_locals, frame.f_globals
    place = next((space[name] for space in spaces if name in space), None)
    for attribute in attributes:
        if not isinstance(place, torch.nn.Module) or hasattr(type(place), attribute):
            return None
        place = getattr(place, attribute, None)
    return place


@functools.lru_cache(maxsize=256)
def _copies(code: CodeType) -> dict[int, list[str]]:
    """The instructions that take what is only copied, by their offsets, with the names of what it is copied to."""
    found = {}
    instructions = [one for one in dis.get_instructions(code) if one.opname != "EXTENDED_ARG"]
    for i, (mask, taking) in enumerate(itertools.pairwise(instructions)):
        if taking.opname != "BINARY_SUBSCR" or mask.opname not in _VARIABLES:
            continue
        loads = [*itertools.takewhile(_is_load, instructions[i + 2 :])]
        after = instructions[i + 2 + len(loads) :]
        if not after or after[0].opname != "STORE_SUBSCR" or len(loads) < 2:
            continue
        first, *attributes, again = loads
        is_same = (again.opname, again.argval) == (mask.opname, mask.argval)
        if is_same and first.opname in _VARIABLES and all(one.opname == "LOAD_ATTR" for one in attributes):
            found[taking.offset] = [first.argval, *(one.argval for one in attributes)]
    return found


def _is_load(instruction: dis.Instruction) -> bool:
    return instruction.opname in _VARIABLES or instruction.opname == "LOAD_ATTR"


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, place: torch.Tensor, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(mask)
        ctx.mark_dirty(place)
        place.copy_(torch.where(mask, tensor, place))
        return place

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        of_place, of_tensor, _ = ctx.needs_input_grad
        others = gradient.clone().masked_fill_(mask, 0) if of_place else None
        # PyTorch adds to zeros.
        zeros = gradient.new_zeros(gradient.shape) if of_tensor else None
        return others, None if zeros is None else zeros + torch.where(mask, gradient, zeros), None
