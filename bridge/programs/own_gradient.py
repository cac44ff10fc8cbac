"""The `bprop` of a Cell inside a fused program."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.utils import _pytree as pytree

from bridge.call import in_program


def call_with_bprop(twin: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `construct` gives, whose gradient is what `bprop` gives.

    Args:
        twin: of a Cell that has one.

    Raises:
        RuntimeError: an argument has tensors in it, and is none.
    """
    bound = inspect.signature(twin.construct).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.args
    for value in given:
        if not isinstance(value, torch.Tensor) and any(isinstance(x, torch.Tensor) for x in pytree.tree_leaves(value)):
            kind = type(value).__name__
            raise RuntimeError(
                f"bridge.fuse: {_name(twin)}, which has a bprop, is given a {kind} of tensors: give it them one by one"
            )
    return _OwnGradient.apply(twin, bound.kwargs, *given)


def _name(twin: Any) -> str:
    """That of the Cell's class."""
    return type(twin).__mro__[2].__name__


class _OwnGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, twin: Any, kwargs: dict[str, Any], *args: Any) -> Any:
        result = twin.construct(*args, **kwargs)
        result = tuple(result) if isinstance(result, list) else result
        results = result if isinstance(result, tuple) else (result,)
        are_tensors = [isinstance(value, torch.Tensor) for value in args]
        ctx.save_for_backward(*(value for value in args if isinstance(value, torch.Tensor)), *results)
        ctx.call = twin, [None if is_tensor else v for is_tensor, v in zip(are_tensors, args, strict=True)], are_tensors
        ctx.is_one = not isinstance(result, tuple)
        return result

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> Any:
        twin, others, are_tensors = ctx.call
        saved = iter(ctx.saved_tensors)
        args = [next(saved) if is_tensor else other for is_tensor, other in zip(are_tensors, others, strict=True)]
        out, dout = (next(saved), given[0]) if ctx.is_one else (tuple(saved), given)
        with in_program.inside():
            found = twin.bprop(*args, out, dout)
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(args):
            raise RuntimeError(
                f"{type(twin).__mro__[2].__name__}.bprop gives {len(found)} gradients for {len(args)} inputs"
            )
        return None, None, *(one if is_tensor else None for one, is_tensor in zip(found, are_tensors, strict=True))
