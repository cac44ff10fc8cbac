"""What libraries register with PyTorch when they are loaded."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence

from bridge.kernels import compiler_errors
from bridge.kernels.errors import KernelError
from bridge.op.devices import LIBRARIES
from bridge.op.table import SHARED

# Of the symbols of whatever registers: torch::Library, torch::RegisterOperators, and PyTorch's stable C interface.
_SYMBOLS = (b"N5torch7LibraryC1", b"17RegisterOperators", b"torch_library_init")

_LOAD = """
import ctypes, json, sys, torch
*first, library = sys.argv[1:]
for path in first:
    ctypes.CDLL(path)
before = set(torch._C._dispatch_get_all_op_names())
ctypes.CDLL(library)
print(json.dumps(sorted(set(torch._C._dispatch_get_all_op_names()) - before)))
"""


def tried(name: str, library: pathlib.Path, after: Sequence[str] = ()) -> list[str] | None:
    """The operators that a library registers, which is loaded in another process to see: what PyTorch refuses to
    register ends the process that loads it. None if it registers nothing.

    Args:
        name: what messages call it.
        library: the library.
        after: libraries that are loaded before it.

    Raises KernelError if PyTorch refuses it.
    """
    data = library.read_bytes()
    if not any(symbol in data for symbol in _SYMBOLS):
        return None
    paths = [str(LIBRARIES), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(paths)}
    own = LIBRARIES / SHARED["CPU"]  # which registers operators too, and which the library may load
    command = [sys.executable, "-c", _LOAD, str(own), *after, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    missing = re.search(r"OSError: (.*undefined symbol.*)", done.stderr)
    if missing:
        raise compiler_errors.load_error(name, missing[1])
    thrown = re.search(r"what\(\): +(.*?)(?:\nException raised from|\n\n|\Z)", done.stderr, re.DOTALL)
    words = thrown[1].strip() if thrown else done.stderr.strip()
    raise KernelError(f"{name}: PyTorch refuses what the sources register: {words}")
