"""The facts of overloads.yaml: what the bridge has to know of single overloads, because PyTorch does not tell it."""

from __future__ import annotations

import enum
import functools
import operator
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import yaml

PATH = pathlib.Path(__file__).parent / "overloads.yaml"


class Fact(enum.Enum):
    """A fact about an overload, by its key in overloads.yaml."""

    # For the generator.
    OUT_DIFFERS = "out_differs"
    """The shim makes the functional call, not that of the out= variant."""
    SHAPE_FROM_DATA = "shape_from_data"
    """There is no shim: Python calls it in PyNative mode, and graph mode has a kernel of its own for it."""
    SHAPE_FROM_ARGUMENTS = "shape_from_arguments"
    """PyTorch's tag that shapes follow from data does not count."""
    ON_HOST = "on_host"
    """It has no CUDA shim."""
    OWN_CUDA_KERNEL = "own_cuda_kernel"
    """Its CUDA shim calls a function of ms_ext/cuda/cuda_kernels.h."""
    # For the bridge, in the table that the generator writes.
    WRITES_ARGUMENTS = "writes_arguments"
    """Graphs keep its order and run it even if nobody uses its results."""
    WRONG_ON_META = "wrong_on_meta"
    """It is inferred on tensors filled with zeros."""
    WRONG_ON_META_IF_MIXED = "wrong_on_meta_if_mixed"
    """It is inferred on tensors filled with zeros where its inputs have several dtypes."""
    READS_VALUES = "reads_values"
    """It is inferred on tensors filled with zeros, and never on meta tensors."""
    REFUSES_ZEROS = "refuses_zeros"
    """Ones take the place of those zeros."""
    PACKED_RNN = "packed_rnn"
    """It is inferred on data of one step."""
    UNCHECKED = "unchecked"
    """Its kernel is never asked what is wrong with a call."""
    LEAVES_OUT_RESULTS = "leaves_out_results"
    """Its kernel may give fewer results than its schema says."""
    SHAPED_BY_ARGUMENT = "shaped_by_argument"
    """In a graph with unknown dimensions, the argument tells its result's shape."""
    # For the checks in scripts/.
    UNINITIALISED = "uninitialised"
    """Values are not compared."""
    CRASHES = "crashes"
    """Random calls leave it out, because PyTorch itself ends the process on some arguments."""


FOR_THE_GENERATOR = {
    Fact.OUT_DIFFERS,
    Fact.SHAPE_FROM_DATA,
    Fact.SHAPE_FROM_ARGUMENTS,
    Fact.ON_HOST,
    Fact.OWN_CUDA_KERNEL,
}


@functools.cache
def table() -> dict[str, Any]:
    """The whole of overloads.yaml."""
    return yaml.safe_load(PATH.read_text())


def _in_this_release(entry: dict[str, Any]) -> bool:
    """Whether an entry is about the installed PyTorch."""
    wanted = entry.get("torch")
    if wanted is None:
        return True
    found = re.fullmatch(r"(>=|<)(\d+)\.(\d+)", wanted)
    assert found is not None, f"{PATH.name}: torch: {wanted!r} is neither '>=2.14' nor '<2.14'"
    compare = operator.ge if found[1] == ">=" else operator.lt
    installed = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return compare(installed, (int(found[2]), int(found[3])))


def _entries() -> Iterator[tuple[Fact, str, str]]:
    """Each fact of this release with an overload's name and the reason."""
    for key, entries in table()["facts"].items():
        for entry in filter(_in_this_release, entries):
            for name in entry["overloads"]:
                yield Fact(key), name, entry["reason"]


@functools.cache
def _by_name() -> dict[str, dict[Fact, str]]:
    found: dict[str, dict[Fact, str]] = {}
    for fact, name, reason in _entries():
        found.setdefault(name, {})[fact] = reason
    return found


def facts(overload: str) -> dict[Fact, str]:
    """What is known of an overload ("add.Tensor"), with the reasons."""
    packet = overload.partition(".")[0]
    return _by_name().get(f"{packet}.*", {}) | _by_name().get(overload, {})


def at_run_time(overload: str) -> dict[str, str]:
    """Those facts that the bridge and its checks read, by their keys."""
    return {fact.value: reason for fact, reason in facts(overload).items() if fact not in FOR_THE_GENERATOR}


def stale(overloads: Iterable[str]) -> list[str]:
    """The names in the table that match none of the functional overloads of the installed PyTorch."""
    whole = set(overloads)
    packets = {f"{name.partition('.')[0]}.*" for name in whole}
    return sorted({name for _, name, _ in _entries()} - whole - packets)


class Skips:
    """Which overloads are left out, and why."""

    def __init__(self) -> None:
        self.types: dict[str, str] = table()["skipped_types"]
        rules = filter(_in_this_release, table()["skipped"])
        self.names = [(re.compile(rule["match"]), rule["reason"]) for rule in rules]
        self.unused = {pattern.pattern for pattern, _ in self.names}

    def reason(self, name: str, types: Iterable[str]) -> str:
        """Why an overload with these names of base types is left out; empty if it is not."""
        for type_ in types:
            if type_ in self.types:
                return self.types[type_]
        for pattern, reason in self.names:
            if pattern.fullmatch(name):
                self.unused.discard(pattern.pattern)
                return reason
        return ""
