"""Shape inference for graph mode: MindSpore's compiler calls a shim's InferShape, and that calls this.

MindSpore passes only shapes; operator, arguments and dtypes are read from the primitive's attributes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

from bridge.infer.on_data import infer_on_data
from bridge.infer.trial import Spec
from bridge.infer.unknown import infer_unknown
from bridge.op import dtypes
from bridge.op.encoding import Text
from bridge.op.overload import overload
from bridge.op.table import Device
from bridge.primitive import level
from bridge.primitive.launch_errors import text_of

_Shape = ctypes.POINTER(ctypes.c_int64)
_INFER = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int),
    ctypes.POINTER(_Shape), ctypes.c_void_p,
)  # fmt: skip


# What else infers: by the end of the kernels' names, called with the argument text and the inputs.
further: dict[str, Callable[[str, tuple[Spec, ...]], tuple[Spec, ...]]] = {}


def _specs(name: str, text: str, device: Device, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """What the kernel of this name gives, as the `_specs` of its primitive does."""
    for end, infer in further.items():
        if name.endswith(end):
            return infer(text, inputs)
    if name.startswith(level.GRADIENT_PREFIX):
        return level.infer(text, inputs)
    if name.startswith(level.BACKWARD_PREFIX):
        return level.infer_backward(text, inputs)
    if name.startswith(level.UNSIZED_PREFIX):
        inner = level.parse(text)
        return infer_unknown(inner.name, inner.text, device, inputs, infer_on_data)
    return infer_unknown(name, Text(overload(name).operator_text(text)), device, inputs)


def results(name: str, text: str, device: Device, inputs: Sequence[tuple[tuple[int, ...], Any]]) -> list[Any]:
    """Shape and dtype of each result, for run_time_inference.cpp of ms_ext. The dtypes are MindSpore's."""
    specs = _specs(name, text, device, tuple((shape, dtypes.to_torch(dtype)) for shape, dtype in inputs))
    return [(shape, dtypes.to_mindspore(dtype)) for shape, dtype in specs]


_installed: list[Any] = []  # keeps the callback alive


def install(library: ctypes.CDLL) -> None:
    """Make `library` (libms_ext.so) infer with bridge/infer/."""
    library.ms_ext_add_shape.argtypes = [ctypes.c_void_p, ctypes.c_int, _Shape]
    library.ms_ext_set_error.argtypes = [ctypes.c_void_p, ctypes.c_char_p]

    @_INFER
    def infer(op: bytes, args: bytes, device: bytes, names: bytes, ndims: Any, shapes: Any, inferred: int) -> None:
        try:
            inputs = tuple(
                (tuple(shapes[i][: ndims[i]]), dtypes.TORCH_DTYPES[name])
                for i, name in enumerate(names.decode().split())
            )
            for shape, _ in _specs(op.decode(), args.decode(), cast(Device, device.decode()), inputs):
                library.ms_ext_add_shape(inferred, len(shape), (ctypes.c_int64 * len(shape))(*shape))
        except Exception as error:
            text = text_of(type(error), str(error) or "inference failed")
            library.ms_ext_set_error(inferred, text.encode())

    _installed.append(infer)
    library.ms_ext_set_infer(infer)
