"""What PyTorch's own functions do with MindSpore's tensors, and MindSpore's gradients with PyTorch's."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import mindspore as ms
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from bridge import _mindspore
from bridge.call import in_program
from bridge.op import devices
from bridge.primitive.tensors import torch_view, wait_for_pytorch


def meet_in_torch() -> None:
    """Have them copy from these, as `load_state_dict` does. The others name the bridge's, in place of "must be Tensor,
    not Tensor"."""
    ms.Tensor.__torch_function__ = classmethod(_in_torch)  # type: ignore[attr-defined]


def _in_torch(cls: type, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    is_copy = function is torch.Tensor.copy_ and len(args) == 2 and isinstance(args[0], torch.Tensor)
    if is_copy and _get_current_dispatch_mode() is None:  # a capture would take a constant
        if devices.target() == "GPU":
            ms.runtime.synchronize()
        else:
            _mindspore.wait()
        copied = args[0].copy_(torch_view(args[1]))
        wait_for_pytorch()
        return copied
    name = torch.overrides.resolve_name(function) or getattr(function, "__name__", str(function))
    raise TypeError(
        f"{name} is PyTorch's own, and was given MindSpore's tensor: bridge.torch and bridge.nn have the functions and "
        "layers for these, and bridge.cell makes a Cell of a module"
    )


def why_no_gradient(result: Any) -> str:
    """Why `mindspore.grad` finds no gradient of what a function gives: it is PyTorch's tensor, or has one in it that
    requires a gradient, or an object has all its tensors. Else empty."""
    if in_program.is_inside():
        return ""
    leaves = [*_leaves(result)]
    if isinstance(result, torch.Tensor) or any(map(_needs_torch, leaves)):
        return (
            "mindspore.grad and value_and_grad: the function gives PyTorch's tensor, and MindSpore sees no gradient "
            "of that: take bridge.value_and_grad, or have the function give MindSpore's tensor, as a Cell of a module "
            "whose `forward` computes it does"
        )
    if any(isinstance(leaf, ms.Tensor) for leaf in leaves):
        return ""
    for holder in (type(leaf) for leaf in leaves if _holds_tensor(leaf)):
        return (
            f"mindspore.grad and value_and_grad: the function gives an object of {holder.__module__}."
            f"{holder.__qualname__}, and MindSpore looks for tensors in tuples, lists and dictionaries only: have the "
            "function give what is to be differentiated, as the object's loss, by itself"
        )
    return ""


def _leaves(value: Any) -> Iterator[Any]:
    """What is in tuples, lists and dictionaries: MindSpore looks there."""
    if isinstance(value, (tuple, list)):
        yield from itertools.chain.from_iterable(map(_leaves, value))
    elif isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(_leaves, value.values()))
    else:
        yield value


def _needs_torch(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _holds_tensor(leaf: Any) -> bool:
    """Whether an object has a tensor that may have a gradient in its attributes."""
    if isinstance(leaf, (type, ms.nn.Cell, torch.nn.Module)):
        return False
    fields = dataclasses.fields(leaf) if dataclasses.is_dataclass(leaf) else ()
    held = {field.name: getattr(leaf, field.name, None) for field in fields} | getattr(leaf, "__dict__", {})
    return any(isinstance(one, ms.Tensor) or _needs_torch(one) for one in _leaves(held))
