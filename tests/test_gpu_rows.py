"""On GPU, the kernels for long rows (ms_ext/cuda/row_kernels.h) give PyTorch's bits, and run where they should.

Usage:

    pytest tests/test_gpu_rows.py --device GPU
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

from bridge import aten
from shared import modes

pytestmark = pytest.mark.gpu


def rows(length: int) -> np.ndarray:
    """Rows with all that a float can be: ties, zeros of both signs, infinities, and NaNs of any bits."""
    rng = np.random.default_rng(length)
    x = rng.standard_normal((40, length)).astype(np.float32)
    x[1:4] *= 30
    x[4] = x[4].round()
    x[5] = 0
    x[6, ::3], x[6, 1::3] = -0.0, 0.0
    x[7, 5], x[8, 7] = np.inf, -np.inf
    x[9] = -np.inf
    x[10, 3::7] = np.nan
    x[11] = rng.integers(-1, 2, length)
    x[12] = np.sort(x[12])
    x[13] = np.sort(x[13])[::-1]
    x[14] *= 1e-42
    x[15:30] = rng.integers(0, 2**32, (15, length), dtype=np.uint32).view(np.float32)
    return x


def assert_same_bits(found: ms.Tensor, wanted: torch.Tensor) -> None:
    assert (found.shape, str(found.dtype).lower()) == (tuple(wanted.shape), str(wanted.dtype).removeprefix("torch."))
    assert found.asnumpy().tobytes() == wanted.cpu().numpy().tobytes()


def kernels(run: Callable[[], Any]) -> list[str]:
    """The names of the kernels that run, without copies from the host, which graphs make."""
    run()
    ms.runtime.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        kept = run()
        ms.runtime.synchronize()
    del kept
    on_device = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return [name for name in on_device if "HtoD" not in name]


def softmax(x: ms.Tensor) -> Any:
    return aten.softmax(x, -1)


def softmax_function(x: ms.Tensor) -> Any:
    return aten._softmax(x, 1, False)


def sort(x: ms.Tensor) -> Any:
    return aten.sort(x, -1)


def sort_descending(x: ms.Tensor) -> Any:
    return aten.sort(x, 1, True)


def stable_sort(x: ms.Tensor) -> Any:
    return aten.sort.stable(x, stable=True, dim=-1)


def stable_sort_descending(x: ms.Tensor) -> Any:
    return aten.sort.stable(x, stable=True, dim=-1, descending=True)


@modes
@pytest.mark.parametrize("function", [softmax, softmax_function])
@pytest.mark.parametrize("length", [2049, 2052, 3000, 3072, 4096, 4100, 5116, 6144, 7000, 8192, 9212, 9216, 9220])
def test_softmax(length: int, function: Callable[[Any], Any], wrap: Callable[[Any], Any]) -> None:
    x = rows(length)
    assert_same_bits(wrap(function)(ms.Tensor(x)), torch.softmax(torch.tensor(x, device="cuda"), -1))


@modes
@pytest.mark.parametrize("function", [sort, sort_descending, stable_sort, stable_sort_descending])
@pytest.mark.parametrize("length", [2048, 2049, 2050, 3001, 4095, 4096, 4097])
def test_sort(length: int, function: Callable[[Any], Any], wrap: Callable[[Any], Any]) -> None:
    x = rows(length)
    descending = function in (sort_descending, stable_sort_descending)
    wanted = torch.sort(torch.tensor(x, device="cuda"), stable=True, dim=-1, descending=descending)
    for f, w in zip(wrap(function)(ms.Tensor(x)), wanted, strict=True):
        assert_same_bits(f, w)


@modes
@pytest.mark.parametrize(("function", "kernel"), [(softmax, "softmax_row"), (sort, "sort_row")])
def test_they_are_the_kernels_that_run(function: Callable[[Any], Any], kernel: str, wrap: Callable[[Any], Any]) -> None:
    run, x = wrap(function), ms.Tensor(rows(4096))
    assert kernels(lambda: run(x)) == [kernel]


@pytest.mark.parametrize(
    ("call", "x"),
    [
        (lambda op, x: op.softmax(x, 0), rows(4096)),
        (lambda op, x: op.softmax(x, -1), rows(4096).clip(-9, 9).astype(np.float16)),
        (lambda op, x: op.softmax(x, -1, torch.float64), rows(4096)),
        (lambda op, x: op.softmax(x, -1), np.zeros((0, 4096), np.float32)),
        (lambda op, x: op.sort(x, 0)[0], rows(4096)),
        (lambda op, x: op.sort(x, -1)[1], np.arange(8192, dtype=np.int32).reshape(2, 4096) // 3),
        (lambda op, x: op.sort(x, -1)[0], np.zeros((0, 4096), np.float32)),
        (lambda op, x: op.sort(x)[1], np.array(3, np.float32)),
        (lambda op, x: op.native_layer_norm(x, [4096], None, None, 1e-5)[1], np.zeros((0, 4096), np.float32)),
    ],
)
def test_tensors_that_they_are_not_made_for(call: Callable[[Any, Any], Any], x: np.ndarray) -> None:
    assert_same_bits(call(aten, ms.Tensor(x)), call(torch.ops.aten, torch.tensor(x, device="cuda")))
