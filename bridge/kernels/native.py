"""Runs a kernel outside of MindSpore, on PyTorch's tensors."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from bridge.op import devices, dtypes
from bridge.op.encoding import Text
from bridge.op.table import SHARED

_SHAPE = ctypes.POINTER(ctypes.c_int64)
# c10::ScalarType's names, as c10::toString has them, for the dtypes that MindSpore has too.
_SCALAR_TYPES = {
    "Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16, "Int": torch.int32, "Long": torch.int64,
    "Half": torch.float16, "Float": torch.float32, "Double": torch.float64, "Bool": torch.bool,
    "BFloat16": torch.bfloat16, "ComplexFloat": torch.complex64, "ComplexDouble": torch.complex128,
    "UInt16": torch.uint16, "UInt32": torch.uint32, "UInt64": torch.uint64, "Float8_e4m3fn": torch.float8_e4m3fn,
    "Float8_e5m2": torch.float8_e5m2,
}  # fmt: skip


def _declared() -> Any:
    library = devices.load(SHARED["CPU"])
    library.ms_ext_results_error.restype = ctypes.c_char_p
    library.ms_ext_results_error.argtypes = [ctypes.c_void_p]
    library.ms_ext_results_count.argtypes = [ctypes.c_void_p]
    library.ms_ext_result_ndim.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.ms_ext_result_spec.restype = ctypes.c_char_p
    library.ms_ext_result_spec.argtypes = [ctypes.c_void_p, ctypes.c_int, _SHAPE]
    library.ms_ext_result_copy.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    library.ms_ext_results_free.argtypes = [ctypes.c_void_p]
    return library


def run(
    entry: Any, text: Text, tensors: list[torch.Tensor], written: list[torch.Tensor], returns: bool
) -> list[torch.Tensor]:
    """Call a shim's Run.

    Args:
        entry: the C function.
        text: the arguments.
        tensors: the inputs.
        written: the results that it writes to.
        returns: whether it returns some, which come after those.

    Raises RuntimeError with the kernel's message.
    """
    library = _declared()
    kept = [tensor.contiguous().detach() for tensor in tensors]
    everything = [*kept, *written]
    count = len(everything)
    device = next((t.device for t in everything if t.is_cuda), torch.device("cpu"))
    params = (ctypes.c_void_p * count)(*[t.data_ptr() for t in everything])
    ndims = (ctypes.c_int * count)(*[t.dim() for t in everything])
    sizes = [(ctypes.c_int64 * t.dim())(*t.shape) for t in everything]
    shapes = (_SHAPE * count)(*[ctypes.cast(size, _SHAPE) for size in sizes])
    types = (ctypes.c_char_p * count)(*[dtypes.NAME_FROM_TORCH[t.dtype].encode() for t in everything])
    entry.restype = ctypes.c_void_p
    entry.argtypes = [ctypes.c_char_p, ctypes.c_int, *[ctypes.c_void_p] * 4, ctypes.c_int]
    index = -1 if device.type == "cpu" else device.index
    results = entry(text.encode(), count, params, ndims, shapes, types, index)
    try:
        error = library.ms_ext_results_error(results).decode(errors="replace")
        if error:
            raise RuntimeError(error)
        if not returns:
            return written
        return [_take(library, results, i, device) for i in range(library.ms_ext_results_count(results))]
    finally:
        library.ms_ext_results_free(results)


def _take(library: Any, results: int, i: int, device: torch.device) -> torch.Tensor:
    shape = (ctypes.c_int64 * library.ms_ext_result_ndim(results, i))()
    name = library.ms_ext_result_spec(results, i, shape).decode()
    if name not in _SCALAR_TYPES:
        raise RuntimeError(f"result {i} is {name}, which MindSpore does not have")
    taken = torch.empty(tuple(shape), dtype=_SCALAR_TYPES[name], device=device)
    library.ms_ext_result_copy(results, i, taken.data_ptr())
    return taken
