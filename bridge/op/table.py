"""The table that the generator wrote: what the bridge knows of each ATen overload."""

from __future__ import annotations

import enum
import functools
import json
import pathlib
from typing import Any, Literal

# MindSpore's devices that the bridge has kernels for.
Device = Literal["CPU", "GPU"]

# What PyTorch calls them, and so the sources and libraries of kernels.
Variant = Literal["CPU", "CUDA"]

# The library with what every shim uses, and the one with the shims of ATen's operators, by device.
SHARED: dict[Device, str] = {"CPU": "libms_ext.so", "GPU": "libms_ext_cuda.so"}
SHIMS: dict[Device, str] = {"CPU": "libaten_cpu.so", "GPU": "libaten_cuda.so"}


class Fact(enum.Enum):
    """What PyTorch does not tell of an overload. aten_ops/overloads.yaml has the overloads and the reasons,
    aten_ops/facts.py what each fact means."""

    WRITES_ARGUMENTS = "writes_arguments"
    WRONG_ON_META = "wrong_on_meta"
    WRONG_ON_META_IF_MIXED = "wrong_on_meta_if_mixed"
    READS_VALUES = "reads_values"
    REFUSES_ZEROS = "refuses_zeros"
    PACKED_RNN = "packed_rnn"
    UNCHECKED = "unchecked"
    LEAVES_OUT_RESULTS = "leaves_out_results"
    SHAPED_BY_ARGUMENT = "shaped_by_argument"
    UNINITIALISED = "uninitialised"
    CRASHES = "crashes"


@functools.cache
def table() -> dict[str, dict[str, Any]]:
    """The generated table: overload name ("add.Tensor") -> schema, shim, devices, flags or the reason of a skip."""
    return json.loads((pathlib.Path(__file__).parent.parent / "operators.json").read_text())


def facts(name: str) -> frozenset[Fact]:
    """The facts of an overload."""
    return frozenset(map(Fact, table()[name].get("facts", ())))


@functools.cache
def packets() -> dict[str, list[str]]:
    """The callable overloads of each operator name, in the order in which PyTorch resolves them."""
    found: dict[str, list[str]] = {}
    for name, row in table().items():
        if "skipped" not in row:
            found.setdefault(name.partition(".")[0], []).append(name)
    return found
