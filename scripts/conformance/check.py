"""Compares the results of one call."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import mindspore as ms

import bridge
from bridge import aten
from bridge.op.table import Fact, facts

from . import convert, reference, source
from .calls import SEED, Call
from .verdict import Skip


def bridge_overload(name: str) -> Any:
    """The bridge's operator for "add.Tensor" or "relu"."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def set_device(device: str) -> None:
    """Have MindSpore work on "CPU" or "GPU", in PyNative mode: graphs here are functions under ms.jit."""
    if ms.get_context("device_target") != device:  # MindSpore refuses to set it twice
        ms.set_device(device)
    ms.set_context(mode=ms.PYNATIVE_MODE)


class Check(ABC):
    """Makes a call through PyTorch and through the bridge, and compares; one object serves many calls.

    Raises:
        Skip: the call cannot be compared.
        Mismatch: the bridge's bits are not PyTorch's.
    """

    def __init__(self, mode: str = "pynative", device: str = "CPU") -> None:
        self.mode = mode
        self.torch_device = "cuda" if device == "GPU" else "cpu"
        set_device(device)

    def __call__(self, call: Call) -> None:
        line = reference.check_comparable(call, self.torch_device)
        call = reference.placed(call, line, self.torch_device)
        self.compare(call, reference.is_seeded(call, line), line["graph_reason"])

    @abstractmethod
    def compare(self, call: Call, seeded: bool, graph_reason: str) -> None:
        """Compare a call that both can make.

        Args:
            call: with its tensors on the device.
            seeded: whether it draws.
            graph_reason: why it works in PyNative mode only; "" for one that works in both.
        """

    def is_in_graph(self, graph_reason: str) -> bool:
        """Whether the call is compared in graph mode.

        Raises:
            Skip: it is, and works in PyNative mode only.
        """
        if self.mode == "graph" and graph_reason:
            raise Skip(f"graph mode: {graph_reason}")
        return self.mode == "graph"


class Forward(Check):
    """Compares results."""

    def compare(self, call: Call, seeded: bool, graph_reason: str) -> None:
        expected = reference.results(call, seeded)
        run = in_graph(call) if self.is_in_graph(graph_reason) else in_pynative(call)
        if seeded:
            bridge.manual_seed(SEED)
        again = functools.partial(reference.results, call, seeded)
        values = Fact.UNINITIALISED not in facts(call.overload)
        reference.compare_to(expected, convert.leaves(run()), again, values=values)


def in_pynative(call: Call) -> Callable[[], Any]:
    function = bridge_overload(call.overload)
    args, kwargs = [*map(convert.argument, call.args)], convert.keywords(call.kwargs)
    return lambda: function(*args, **kwargs)


def in_graph(call: Call) -> Callable[[], Any]:
    """The call inside a compiled function of its tensors alone."""
    written = source.write(call)
    module = written.module(f"@ms.jit\ndef call({written.parameters}):\n    return {written.expression}\n")
    return lambda: module.call(*written.tensors)
