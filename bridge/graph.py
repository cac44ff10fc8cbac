"""Inference for graph mode: MindSpore's compiler calls a shim's InferShape and InferType, and those call this.

The shims get shapes without dtypes in the one and dtypes without shapes in the other, so the primitive's attribute
`aten_dtypes` brings the dtypes, and InferType answers from the InferShape before it.
"""
from __future__ import annotations

import ctypes
from typing import Any

from mindspore._c_expression.typing import type_to_type_id

from bridge import dtypes
from bridge.infer import infer_unknown

_Shape = ctypes.POINTER(ctypes.c_int64)
_INFER = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(_Shape),
    ctypes.c_void_p,
)  # fmt: skip

_result_types: dict[tuple[bytes, bytes, bytes], list[int]] = {}


def install(library: ctypes.CDLL) -> None:
    """Make `library` (libms_ext.so) infer with bridge/infer.py."""
    library.ms_ext_add_shape.argtypes = [ctypes.c_void_p, ctypes.c_int, _Shape]
    library.ms_ext_add_type.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.ms_ext_set_error.argtypes = [ctypes.c_void_p, ctypes.c_char_p]

    @_INFER
    def infer(op: bytes, args: bytes, names: bytes, ndims: Any, shapes: Any, inferred: int) -> None:
        try:
            key = (op, args, names)
            if ndims:
                inputs = tuple(
                    (tuple(shapes[i][: ndims[i]]), dtypes.TORCH_DTYPES[name])
                    for i, name in enumerate(names.decode().split())
                )
                results = infer_unknown(op.decode(), args.decode(), inputs)
                _result_types[key] = [type_to_type_id(dtypes.to_mindspore(dtype)) for _, dtype in results]
                for shape, _ in results:
                    library.ms_ext_add_shape(inferred, len(shape), (ctypes.c_int64 * len(shape))(*shape))
            else:
                for type_id in _result_types[key]:
                    library.ms_ext_add_type(inferred, type_id)
        except Exception as error:
            library.ms_ext_set_error(inferred, str(error).encode() or b"inference failed")

    library.bridge_infer = infer  # keeps the callback alive as long as the library
    library.ms_ext_set_infer(infer)
