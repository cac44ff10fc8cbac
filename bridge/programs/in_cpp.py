"""What programs and optimizers have in C++ (ms_ext/programs/python)."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from bridge.op.devices import LIBRARIES


@functools.cache
def library() -> Any:
    """The library, whose functions raise the errors of Python's that they set."""
    found = ctypes.PyDLL(str(LIBRARIES / "libms_ext_python.so"))
    found.ms_ext_gradients_of.argtypes = [*[ctypes.py_object] * 3, ctypes.c_bool]
    found.ms_ext_gradients_of.restype = ctypes.py_object
    found.ms_ext_choices.argtypes = [ctypes.c_bool]
    found.ms_ext_choices.restype = ctypes.c_uint64
    found.ms_ext_contents.argtypes = [ctypes.py_object, ctypes.c_char_p]
    found.ms_ext_contents.restype = ctypes.c_void_p
    found.ms_ext_free_contents.argtypes = [ctypes.c_void_p]
    found.ms_ext_free_contents.restype = None
    found.ms_ext_contents_are_same.argtypes = [ctypes.c_void_p]
    found.ms_ext_contents_are_same.restype = ctypes.c_bool
    found.ms_ext_version_of.argtypes = [ctypes.py_object]
    found.ms_ext_version_of.restype = ctypes.c_uint64
    found.ms_ext_unchanged.argtypes = [*[ctypes.py_object] * 4, ctypes.c_bool]
    found.ms_ext_unchanged.restype = ctypes.c_void_p
    found.ms_ext_free_unchanged.argtypes = [ctypes.c_void_p]
    found.ms_ext_free_unchanged.restype = None
    found.ms_ext_is_unchanged.argtypes = [ctypes.c_void_p]
    found.ms_ext_is_unchanged.restype = ctypes.c_bool
    found.ms_ext_set_item_method.argtypes = [ctypes.py_object, ctypes.c_char_p, ctypes.py_object]
    found.ms_ext_set_item_method.restype = ctypes.py_object
    found.ms_ext_repeated_step.argtypes = [ctypes.py_object] * 4
    found.ms_ext_repeated_step.restype = ctypes.c_void_p
    found.ms_ext_free_repeated_step.argtypes = [ctypes.c_void_p]
    found.ms_ext_free_repeated_step.restype = None
    found.ms_ext_repeat_step.argtypes = [ctypes.c_void_p, ctypes.py_object]
    found.ms_ext_look_at_step_again.argtypes = [ctypes.c_void_p]
    found.ms_ext_look_at_step_again.restype = ctypes.c_bool
    found.ms_ext_set_host_function.argtypes = [ctypes.py_object]
    found.ms_ext_set_host_function.restype = None
    found.ms_ext_repeat_host_call.argtypes = [ctypes.c_int64, ctypes.py_object]
    found.ms_ext_repeat_host_call.restype = ctypes.c_bool
    return found
