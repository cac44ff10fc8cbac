"""scripts/conformance/functions.py finds a function whose result, gradient or words are not PyTorch's."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest
import torch

from bridge import torch as T
from conformance import functions
from conformance.verdict import Mismatch

ROWS = {ours.__name__: (entry, ours, theirs) for entry, ours, theirs in functions.rows()}


def call(name: str, ours: Any = None) -> Any:
    """The last sample of a function, made by it or by another."""
    *_, found = functions.calls(*ROWS[name], torch.float32, "cpu", None)
    return found if ours is None else dataclasses.replace(found, ours=ours)


def test_the_sweep_reaches_functions_and_methods() -> None:
    names = set(ROWS)
    assert len(names) > 500
    assert {"torch.add", "torch.nn.functional.interpolate", "torch.linalg.svd", "torch.fft.fft"} <= names
    assert {"torch.special.erfcx", "torch.Tensor.view", "torch.Tensor.expand"} <= names


@pytest.mark.parametrize("graph", [False, True], ids=["PyNative", "graph"])
def test_another_result_is_found(graph: bool) -> None:
    functions.compare_results(call("torch.sin"), graph)
    functions.compare_gradients(call("torch.sin"), graph)
    with pytest.raises(Mismatch, match="values differ"):
        functions.compare_results(call("torch.sin", T.cos), graph)
    with pytest.raises(Mismatch, match="values differ"):
        functions.compare_gradients(call("torch.sin", T.cos), graph)


def test_other_words_are_found() -> None:
    entry, ours, theirs = ROWS["torch.cat"]
    found = functions.error_calls(entry, ours, theirs, "cpu")
    error = next(call for call in found if "out" not in call.kwargs)
    functions.compare_errors(error)
    with pytest.raises(Mismatch, match="instead of"):
        functions.compare_errors(dataclasses.replace(error, ours=cast(Any, T.stack)))
