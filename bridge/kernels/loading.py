"""Loads libraries of kernels for good: MindSpore closes a library with each of its kernels."""

from __future__ import annotations

import ctypes
import pathlib
from collections.abc import Sequence

import torch

from bridge._start import start
from bridge.kernels import compiler_errors
from bridge.kernels.errors import KernelError
from bridge.kernels.registrations import tried

_open: dict[str, ctypes.CDLL] = {}
# Those of them that register operators, in the order in which they were loaded.
_registering: list[str] = []


def load(path: pathlib.Path, name: str, registers: Sequence[str] = ()) -> ctypes.CDLL:
    """Load a library, once.

    Args:
        path: the library.
        name: what messages call it.
        registers: the operators that it registers with PyTorch.

    Raises KernelError if a symbol is missing, or if PyTorch would end the process: because one of the operators, or
    the namespace as a whole, is another library's.
    """
    start()  # the library needs the bridge's own
    opened = _open.get(str(path))
    if opened is not None:
        return opened
    everyone = {*torch._C._dispatch_get_all_op_names()} if registers else set()
    known = everyone & {*registers}
    if known:
        raise KernelError(
            f"{name}: {min(known)} is registered already, by another library or by what its sources were before, and "
            "PyTorch does not replace operators: start a new process"
        )
    if {operator.partition("::")[0] for operator in registers} & {known.partition("::")[0] for known in everyone}:
        tried(name, path, after=[*torch.ops.loaded_libraries, *_registering])
    try:
        opened = ctypes.CDLL(str(path))
    except OSError as error:
        raise compiler_errors.load_error(name, str(error)) from None
    _open[str(path)] = opened
    if registers:
        _registering.append(str(path))
    return opened
