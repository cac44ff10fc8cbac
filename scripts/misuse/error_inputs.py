"""PyTorch's own examples of errors, made with the operator that has the name of PyTorch's function."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from bridge import aten
from conformance.calls import describe, tensors_in
from conformance.dtypes import check_representable
from conformance.sources import opinfo_entries
from conformance.verdict import Mismatch, Skip

from .judge import SKIPPED, Verdict, by_bridge, by_pytorch, compare_errors


def error_inputs() -> Iterator[Verdict]:
    for entry in opinfo_entries():
        function = getattr(aten, _operator_name(entry.name), None)
        if function is None or entry.error_inputs_func is None:
            continue
        for number, example in enumerate(_examples(entry)):
            verdict = _verdict(entry, number, example.sample_input, function)
            if verdict is not None:
                yield verdict


def _operator_name(name: str) -> str:
    """ATen's name of a function of PyTorch's: linalg_solve for linalg.solve, relu for nn.functional.relu."""
    return re.sub(r"^(linalg|fft|special)\.", r"\1_", name).rpartition(".")[2]


def _examples(entry: Any) -> Iterator[Any]:
    with contextlib.suppress(Exception):
        yield from entry.error_inputs("cpu")


def _verdict(entry: Any, number: int, sample: Any, function: Any) -> Verdict | None:
    """None for an example that is none here: PyTorch answers, or it is about `out`."""
    call = f"{entry.name} {number}: {describe([sample.input, *sample.args])[:150]}"
    try:
        for tensor in tensors_in([sample.input, sample.args, sample.kwargs]):
            check_representable(tensor)
        expected = by_pytorch(lambda: entry.op(sample.input, *sample.args, **sample.kwargs))
        if not isinstance(expected, Exception) or "out" in sample.kwargs:
            return None
        actual = by_bridge(function, [sample.input, *sample.args], sample.kwargs)
        kind, detail = compare_errors(expected, actual)
        return Verdict(entry.name, kind, call, detail)
    except (Skip, Mismatch) as skip:
        return Verdict(entry.name, SKIPPED, call, str(skip))
