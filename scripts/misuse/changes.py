"""A recorded call with one thing in it changed."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

from conformance.calls import Call


def _other_tensors(x: torch.Tensor) -> Iterator[tuple[str, Any]]:
    for dtype in (torch.float64, torch.float16, torch.int64, torch.int32, torch.bool, torch.complex64):
        if dtype != x.dtype:
            with contextlib.suppress(Exception):
                yield str(dtype).removeprefix("torch."), x.to(dtype)
    if x.dim() and x.numel():
        yield "no dimension", x.reshape(-1)[0].clone()
        yield "no dimension, float64", x.reshape(-1)[0].to(torch.float64)
    yield "a dimension more", x.unsqueeze(0).clone()
    for dim in {0, max(x.dim() - 1, 0)} if x.dim() else ():
        yield f"no element along {dim}", x.narrow(dim, 0, 0).clone()
        if x.shape[dim]:
            yield f"without dimension {dim}", x.select(dim, 0).clone()
            yield f"longer along {dim}", torch.cat([x, x.narrow(dim, 0, 1)], dim)
    yield "None", None
    yield "a number", 2


def _other_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Values to put in an argument's place, with what is said of them."""
    if isinstance(value, torch.Tensor):
        yield from _other_tensors(value)
    elif isinstance(value, bool):
        yield str(not value), not value
    elif isinstance(value, int):
        for other in (-1, 0, 1, 3, -7, 99, 2**40, 2**62, -(2**63)):
            if other != value:
                yield str(other), other
    elif isinstance(value, float):
        for number in (float("nan"), -1.0, 0.0, 2):
            yield str(number), number
    elif isinstance(value, str):
        yield "junk", "junk"
    elif isinstance(value, torch.dtype):
        for dtype in (torch.int64, torch.complex64, torch.bool, torch.float16):
            yield str(dtype), dtype
    elif isinstance(value, (list, tuple)):
        yield from _other_lists(list(value))
    if value is not None and not isinstance(value, torch.Tensor):
        yield "None", None
        yield "a string", "a string"


def _other_lists(items: list[Any]) -> Iterator[tuple[str, Any]]:
    if not items:
        return
    yield "an empty list", []
    yield "a list shorter by one", items[:-1]
    yield "a list longer by one", [*items, items[-1]]
    for what, other in _other_values(items[-1]):
        yield f"the last of the list {what}", [*items[:-1], other]


def changes(call: Call) -> Iterator[Call]:
    """The call with one argument changed, and with all tensors changed alike."""
    for i, value in enumerate(call.args):
        for what, other in _other_values(value):
            args = (*call.args[:i], other, *call.args[i + 1 :])
            yield dataclasses.replace(call, args=args, source=f"argument {i}: {what}")
    for name, value in call.kwargs.items():
        if not isinstance(value, (torch.device, torch.layout)):
            for what, other in _other_values(value):
                yield dataclasses.replace(call, kwargs={**call.kwargs, name: other}, source=f"{name}: {what}")
    together: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "all without elements": lambda x: x.narrow(0, 0, 0).clone() if x.dim() else x,
        "all without a dimension": lambda x: x.reshape(-1)[0].clone() if x.numel() else x,
        **{f"all {dtype}": operator.methodcaller("to", dtype) for dtype in (torch.int32, torch.float64, torch.bool)},
    }
    for what, change in together.items():
        with contextlib.suppress(Exception):
            yield dataclasses.replace(call.with_tensors(change), source=what)
