"""Shape inference for graph mode: MindSpore's compiler calls a shim's InferShape, and that calls this.

It brings shapes alone: the primitive's attributes tell the rest.
"""
from __future__ import annotations

import ctypes
from typing import Any

from bridge import dtypes
from bridge.infer import check_dtypes, infer_unknown

_Shape = ctypes.POINTER(ctypes.c_int64)
_INFER = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int),
    ctypes.POINTER(_Shape), ctypes.c_void_p,
)  # fmt: skip


_installed: list[Any] = []  # keeps the callback alive


def install(library: ctypes.CDLL) -> None:
    """Make `library` (libms_ext.so) infer with bridge/infer.py."""
    library.ms_ext_add_shape.argtypes = [ctypes.c_void_p, ctypes.c_int, _Shape]
    library.ms_ext_set_error.argtypes = [ctypes.c_void_p, ctypes.c_char_p]

    @_INFER
    def infer(op: bytes, args: bytes, device: bytes, names: bytes, ndims: Any, shapes: Any, inferred: int) -> None:
        try:
            inputs = tuple(
                (tuple(shapes[i][: ndims[i]]), dtypes.TORCH_DTYPES[name])
                for i, name in enumerate(names.decode().split())
            )
            check_dtypes(op.decode(), args.decode(), device.decode(), inputs)
            for shape, _ in infer_unknown(op.decode(), args.decode(), device.decode(), inputs):
                library.ms_ext_add_shape(inferred, len(shape), (ctypes.c_int64 * len(shape))(*shape))
        except Exception as error:
            library.ms_ext_set_error(inferred, str(error).encode() or b"inference failed")

    _installed.append(infer)
    library.ms_ext_set_infer(infer)
