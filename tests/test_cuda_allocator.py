"""PyTorch's CUDA allocators have the virtual functions of their interface, which ms_ext/cuda/virtual_table.h copies: no
more.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import subprocess
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from aten_ops import build

ROOT = pathlib.Path(__file__).parent.parent
TORCH = pathlib.Path(torch.__file__).parent
SOURCE = """
#include <c10/cuda/CUDACachingAllocator.h>

#include "cuda/virtual_table.h"

extern "C" size_t count() {
  return ms_ext::count_virtual_functions<c10::cuda::CUDACachingAllocator::CUDAAllocator>();
}
"""
IN_FRONT = 2  # words of a table: the offset to the whole object, and its type

pytestmark = [
    pytest.mark.skipif(torch.version.cuda is None, reason="a CPU build of PyTorch has no CUDA allocator"),
    pytest.mark.skipif(not build.cuda_headers(), reason="it needs CUDA's own headers, which the CUDA toolkit brings"),
]


def test_the_copied_table_has_all_functions_of_pytorchs_allocators(tmp_path: pathlib.Path) -> None:
    source, library = tmp_path / "count.cpp", tmp_path / "count.so"
    source.write_text(SOURCE)
    headers = [part for folder in build.cuda_headers() for part in ("-isystem", str(folder))]
    flags = ["-std=c++20", "-shared", "-fPIC", f"-I{ROOT / 'ms_ext'}", "-isystem", str(TORCH / "include"), *headers]
    subprocess.run([os.environ.get("CXX", "g++"), *flags, str(source), "-o", str(library)], check=True)
    counted = ctypes.CDLL(str(library)).count()
    tables = sizes_of_tables()
    assert len(tables) >= 2  # that of cudaMalloc, and that of cudaMallocAsync
    assert tables == dict.fromkeys(tables, (IN_FRONT + counted) * ctypes.sizeof(ctypes.c_void_p))


def sizes_of_tables() -> dict[str, int]:
    """The bytes of the tables of virtual functions in PyTorch's library, by the name of the allocator."""
    command = ["nm", "--demangle", "--print-size", str(TORCH / "lib" / "libc10_cuda.so")]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    tables = [line.split(maxsplit=3) for line in output.splitlines() if " vtable for c10::cuda::" in line]
    return {name: int(size, 16) for _, size, _, name in tables if name.endswith("Allocator")}
