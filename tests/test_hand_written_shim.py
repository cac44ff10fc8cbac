"""A shim written by hand, compiled against ms_ext.h as a user would, runs as a MindSpore operator in both modes."""

from __future__ import annotations

import ctypes
import os
import pathlib
import shutil
import subprocess
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import ops

import bridge

COMPILER = os.environ.get("CXX", "g++")
LEAKY_RELU = pathlib.Path(__file__).parent.parent / "aten_ops" / "leaky_relu.cpp"
INCLUDE = pathlib.Path(bridge.__file__).parent / "include"
LIBRARIES = pathlib.Path(bridge.__file__).parent / "lib"
TORCH = pathlib.Path(torch.__file__).parent

# In the style of MindSpore's tutorial, with two outputs of different dtypes.
TOP_VALUES = """
#include <ATen/ops/topk.h>

#include "ms_ext.h"

extern "C" int TopValues(int nparam, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *stream,
                         void *extra) {
  auto tensors = get_torch_tensors(nparam, params, ndims, shapes, dtypes, c10::kCPU);
  auto at_input = tensors[0];
  auto at_values = tensors[1];
  auto at_indices = tensors[2];
  torch::topk_out(at_values, at_indices, at_input, at_values.size(-1));
  output_memcpy(params[3], at_values.t());
  return 0;
}
"""

X = np.array([[0.0, -0.1], [-0.2, 1.0]], np.float32)

pytestmark = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no C++ compiler {COMPILER}")


def compile_shim(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Compile a shim as bridge's documentation tells a user to."""
    library = folder / f"lib{source.stem}.so"
    command = [
        COMPILER, "-std=c++20", "-O1", "-shared", "-fPIC", str(source), "-o", str(library),
        f"-I{INCLUDE}", "-isystem", str(TORCH / "include"), f"-L{LIBRARIES}", f"-L{TORCH / 'lib'}",
        "-lms_ext", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{LIBRARIES}:{TORCH / 'lib'}", "-Wl,--no-undefined",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    ctypes.CDLL(str(library))  # MindSpore closes a library together with a kernel; this holds it open
    return library


@pytest.fixture(scope="module")
def leaky_relu(tmp_path_factory: pytest.TempPathFactory) -> ops.Custom:
    library = compile_shim(LEAKY_RELU, tmp_path_factory.mktemp("shim"))
    return ops.Custom(f"{library}:LeakyRelu", lambda x: x, lambda x: x, "aot")


@pytest.fixture(scope="module")
def top_values(tmp_path_factory: pytest.TempPathFactory) -> ops.Custom:
    folder = tmp_path_factory.mktemp("shim")
    source = folder / "top_values.cpp"
    source.write_text(TOP_VALUES)
    library = compile_shim(source, folder)
    shapes = lambda x: ([*x[:-1], 2], [*x[:-1], 2], [2, *x[:-1]])  # noqa: E731
    return ops.Custom(f"{library}:TopValues", shapes, lambda x: (x, ms.int64, x), "aot")


class Net(ms.nn.Cell):
    """One operator in graph mode."""

    def __init__(self, operator: ops.Custom) -> None:
        super().__init__()
        self.operator = operator

    @ms.jit
    def construct(self, x):
        return self.operator(x)


@pytest.mark.parametrize("wrap", [lambda operator: operator, Net], ids=["PyNative", "graph"])
def test_leaky_relu_prints_what_the_tutorial_prints(leaky_relu: ops.Custom, wrap: Any) -> None:
    result = wrap(leaky_relu)(ms.Tensor(X))
    assert str(result) == "[[ 0.    -0.001]\n [-0.002  1.   ]]"


@pytest.mark.parametrize("wrap", [lambda operator: operator, Net], ids=["PyNative", "graph"])
def test_leaky_relu_takes_every_shape_and_dtype(leaky_relu: ops.Custom, wrap: Any) -> None:
    call = wrap(leaky_relu)
    for shape in [(), (0,), (3, 0), (7,), (2, 1, 2, 1, 2, 1, 2, 2)]:
        for dtype in (np.float32, np.float64, np.float16):
            x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
            expected = torch.ops.aten.leaky_relu(torch.tensor(x)).numpy()
            result = call(ms.Tensor(x)).asnumpy()
            assert result.dtype == dtype and result.shape == shape
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("wrap", [lambda operator: operator, Net], ids=["PyNative", "graph"])
def test_outputs_in_the_tutorials_style(top_values: ops.Custom, wrap: Any) -> None:
    x = np.random.default_rng(1).standard_normal((5, 9)).astype(np.float32)
    values, indices, transposed = wrap(top_values)(ms.Tensor(x))
    expected = torch.topk(torch.tensor(x), 2)
    np.testing.assert_array_equal(values.asnumpy(), expected.values.numpy())
    np.testing.assert_array_equal(indices.asnumpy(), expected.indices.numpy())
    np.testing.assert_array_equal(transposed.asnumpy(), expected.values.numpy().T)
    assert indices.dtype == ms.int64
