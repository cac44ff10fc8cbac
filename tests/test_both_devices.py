"""A file with host code for both devices, in each form that a kernel can have. test_gpu_kernels.py has it on a GPU."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from bridge import kernels
from shared import data

BOTH = pathlib.Path(__file__).parent / "kernels" / "both"
SOURCES: dict[str, Any] = {"sources": BOTH / "host.cpp", "cuda": [BOTH / "host.cpp", BOTH / "device.cu"]}
X = data(7, 19)


@functools.cache
def extension() -> Any:
    return kernels.extension(
        schema="both::scaled(Tensor x, float factor) -> Tensor", results="x",
        gradient="x: both::scaled(grad, factor)", **SOURCES,
    )  # fmt: skip


@functools.cache
def aot() -> Any:
    return kernels.aot(schema="Halve(Tensor x) -> Tensor", results="x", gradient="x: Halve(grad)", **SOURCES)


@functools.cache
def registered() -> Any:
    # Its file registers for both devices, so the other is added to it.
    return kernels.registered(
        "both::tripled", BOTH / "host.cpp", cuda=BOTH / "device.cu", results="x", gradient="x: both::tripled(grad)"
    )


# What makes the kernel, what it takes besides x, and the factor.
FORMS: dict[str, tuple[Callable[[], Any], tuple[float, ...], float]] = {
    "extension": (extension, (1.5,), 1.5),
    "registered": (registered, (), 3),
    "aot": (aot, (), 0.5),
}


@pytest.mark.parametrize("form", FORMS)
def test_one_file_has_host_code_for_both_devices(mode: Callable[..., Any], form: str) -> None:
    make, others, factor = FORMS[form]
    kernel = make()

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return kernel(x, *others)

    x = ms.Tensor(X)
    np.testing.assert_array_equal(mode(call)(x).asnumpy(), X * np.float32(factor))
    np.testing.assert_array_equal(mode(ms.grad(call))(x).asnumpy(), np.full_like(X, factor))
    assert mode(call)(ms.Tensor(X[:0])).shape == (0, 19)
