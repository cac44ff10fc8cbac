"""Strides of results that PyTorch's kernels do not lay out row by row: linear algebra gives column-major matrices.

MindSpore's copy of such a result is contiguous. PyTorch's backward saves the original, and its matrix products round
differently with other strides, so a backward shim gets the strides back (ms_ext/backward.h). Inference sees them first,
on the way of every forward call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from bridge.op.encoding import encode

_libraries: list[ctypes.CDLL] = []


def install(library: ctypes.CDLL) -> None:
    """Report to `library` (libms_ext.so)."""
    library.ms_ext_add_layout.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p]
    _libraries.append(library)


def record(name: str, text: str, shapes: Sequence[tuple[int, ...]], results: Sequence[torch.Tensor]) -> None:
    """Remember the strides of an overload's results for inputs of these shapes, if one of them is not contiguous."""
    if all(result.is_contiguous() for result in results):
        return
    for library in _libraries:
        library.ms_ext_add_layout(
            (encode(name) + text).encode(),
            encode([list(shape) for shape in shapes]).encode(),
            encode([list(result.stride()) for result in results]).encode(),
        )
