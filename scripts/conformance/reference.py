"""PyTorch's side of a comparison: which calls can be compared, and what PyTorch makes of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from bridge import coverage
from bridge.op.table import Fact, facts

from .calls import SEED, Call, seed_torch
from .compare import compare, flatten
from .dtypes import check_representable
from .verdict import Mismatch, Skip, skip_on_error

DOUBTS = 10  # how many more references a miss is worth: two runs of sums without an order can agree by chance
Result = TypeVar("Result")


@functools.cache
def _coverage() -> dict[str, dict[str, Any]]:
    return coverage.report()["overloads"]


def check_comparable(call: Call, torch_device: str) -> dict[str, Any]:
    """The overload's line of the coverage report.

    Raises:
        Skip: MindSpore cannot take the call.
        Mismatch: the coverage report does not know the overload.
    """
    for tensor in call.tensors():
        check_representable(tensor)
    devices = {v.type for v in (*call.args, *call.kwargs.values()) if isinstance(v, torch.device)}
    if devices - {torch_device}:
        raise Skip("asks for another device")
    line = _coverage().get(call.overload)
    if line is None:
        raise Mismatch("the coverage report does not list this overload")
    if line["status"] != "callable":
        raise Skip(f"coverage: {line['reason']}")
    return line


def placed(call: Call, line: dict[str, Any], torch_device: str) -> Call:
    """The call with its tensors where the bridge runs it: for some operators on CPU, whatever the device.

    Raises:
        Skip: a CUDA kernel takes tensors of the host's too: MindSpore's are all on the GPU.
    """
    if torch_device == "cpu" or "GPU" in line["devices"]:
        for tensor in call.tensors():
            if tensor.device.type != torch_device:
                raise Skip(f"tensors on {tensor.device.type}")
        return call
    return call.with_tensors(torch.Tensor.cpu)


def is_seeded(call: Call, line: dict[str, Any]) -> bool:
    return bool(line.get("random")) or torch.Tag.nondeterministic_seeded in call.op.tags


def copies(call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Fresh tensors for each run: some functional schemas write to their inputs all the same."""
    fresh = call.with_tensors(torch.Tensor.clone)
    return fresh.args, fresh.kwargs


def repeatable(compute: Callable[[], Result], values: Callable[[Result], list[Any]], seeded: bool) -> Result:
    """What PyTorch computes.

    Args:
        compute: computes it. It is called twice.
        values: what of it must be the same both times.
        seeded: whether it draws.

    Raises:
        Skip: PyTorch does not repeat itself.
    """
    runs = []
    for _ in range(2):
        if seeded:
            seed_torch(SEED)
        runs.append(compute())
    try:
        compare(values(runs[0]), values(runs[1]))
    except Mismatch:
        raise Skip("PyTorch does not repeat itself") from None
    return runs[0]


def results(call: Call, seeded: bool) -> list[Any]:
    """PyTorch's results of the call."""

    def compute() -> list[Any]:
        args, kwargs = copies(call)
        # oneDNN's LSTM has another kernel without gradient mode, and other bits on some processors.
        with skip_on_error("PyTorch refuses these arguments"), torch.enable_grad():
            found = flatten(call.op(*args, **kwargs))
        for result in found:
            check_representable(result)
        return found

    return compute() if Fact.UNINITIALISED in facts(call.overload) else repeatable(compute, list, seeded)


def compare_to(expected: list[Any], actual: list[Any], again: Callable[[], list[Any]], **how: Any) -> None:
    """Compare with PyTorch's result.

    Args:
        expected: PyTorch's.
        actual: the bridge's.
        again: computes PyTorch's once more. After a miss it is called DOUBTS times.
        how: what `compare` takes.

    Raises:
        Mismatch: they differ.
        Skip: they differ, and so do PyTorch's own.
    """
    try:
        compare(expected, actual, **how)
    except Mismatch as miss:
        for _ in range(DOUBTS):
            try:
                compare(expected, again())
            except Mismatch:
                raise Skip("PyTorch does not repeat itself") from None
        raise miss
