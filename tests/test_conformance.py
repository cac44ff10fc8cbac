"""A part of scripts/conformance that is fast enough for every run: one call of each overload, bit for bit.

Each row of OpInfo gives its first samples of float32, and our own samples are all there. The script sweeps everything.
"""

from __future__ import annotations

import functools
from collections import Counter

import pytest
import torch

from conformance.calls import Call
from conformance.check import Forward
from conformance.compare import compare
from conformance.options import Options
from conformance.report import load_expected_misses
from conformance.sources import recorded_calls
from conformance.verdict import FAILED, Mismatch, judge

CHUNKS = 16
# Graph mode compiles each call: a spread of kinds rather than all of them.
GRAPH_OVERLOADS = [
    "add.Tensor", "add.Scalar", "leaky_relu", "softmax.int", "native_layer_norm", "convolution", "mm", "sort", "topk",
    "cat", "split.Tensor", "index.Tensor", "where.self", "sum.dim_IntList", "arange.start_step", "full", "clamp",
    "_to_copy", "linalg_svd", "fft_fft", "embedding", "max_pool2d_with_indices", "upsample_bilinear2d.vec", "gelu",
    "std.correction", "lstm.input", "_foreach_add.List", "bernoulli.p", "transpose.int", "nonzero",
]  # fmt: skip


@functools.cache
def calls() -> dict[str, Call]:
    """The first recorded call of each overload."""
    options = Options(max_calls=1, max_samples=4)
    return {call.overload: call for call in recorded_calls(torch.float32, options)}


@functools.cache
def check(mode: str) -> Forward:
    return Forward(mode)


def misses(mode: str, names: list[str]) -> list[str]:
    """Overload and cause of each call without PyTorch's bits. The expected misses are not run: some end the process."""
    expected = load_expected_misses("CPU")
    outcomes = [judge(calls()[name], check(mode)) for name in names if name not in expected]
    return [f"{o.overload}: {o.cause}\n  {o.key}" for o in outcomes if o.status == FAILED]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_one_call_of_each_overload(chunk: int) -> None:
    found = misses("pynative", sorted(calls())[chunk::CHUNKS])
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", GRAPH_OVERLOADS)
def test_graph_mode(name: str) -> None:
    found = misses("graph", [name])
    assert not found, "\n".join(found)


def test_the_sweep_reaches_what_it_should() -> None:
    """A recorder that goes blind would pass every other test here."""
    reached = set(calls())
    assert len(reached) > 1270
    sources = Counter(call.source.split()[0] for call in calls().values())
    assert sources["OpInfo"] > 850 and sources["own"] > 350


@pytest.mark.parametrize(
    ("want", "got"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0000002])),
        (torch.tensor([0.0]), torch.tensor([-0.0])),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64)),
        (torch.tensor([1.0]), torch.tensor(1.0)),
        (torch.tensor([1.0]), 1.0),
        (1, True),
    ],
    ids=["one bit", "sign of zero", "dtype", "shape", "scalar for tensor", "bool for int"],
)
def test_differences_are_seen(want: object, got: object) -> None:
    with pytest.raises(Mismatch):
        compare([want], [got])


def test_nan_equals_nan_whatever_its_payload() -> None:
    payload = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    compare([torch.tensor([float("nan")])], [payload])
