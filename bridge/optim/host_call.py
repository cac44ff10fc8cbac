"""A call of Python in a graph: a primitive whose kernel calls an object of this process
(ms_ext/programs/host_call.cpp)."""

from __future__ import annotations

import ctypes
import functools
import itertools
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from bridge import _mindspore
from bridge.infer.trial import Spec
from bridge.op import devices, dtypes
from bridge.op.encoding import encode
from bridge.op.table import SHARED, Device
from bridge.primitive.graph_calls import Call, Item
from bridge.primitive.kernel import Kernel
from bridge.programs.in_cpp import library


class Callee(Protocol):
    """What a graph calls."""

    def launch(self, addresses: tuple[int, ...]) -> dict[str, Any] | None:
        """Work on tensors at these addresses, on the thread and stream of the launch. 0 is that of a tensor without
        elements.

        Returns:
            What C++ needs to do the same again (ms_ext/programs/python/repeated_launch.h), or None.
        """


_callees: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count()


class HostCall(Kernel):
    """The primitive. It takes a tuple of tensors for each dtype, and Parameters that it writes to. It gives True.

    Args:
        name: what errors call it.
        callee: whose `launch` the kernel calls.
        inputs: the number of tensors.
        device: see Kernel.
    """

    def __init__(self, name: str, callee: Callee, inputs: int, device: Device) -> None:
        number = next(_numbers)
        _callees[number] = callee
        weakref.finalize(callee, library().ms_ext_repeat_host_call, number, None)
        _install(device)
        super().__init__(name, encode(number) + encode(inputs), f"{SHARED[device]}:aten_host_call", device, False, "")
        _mindspore.infer_types_in_cpp(self, [dtypes.to_mindspore(torch.bool)])
        _mindspore.keep_in_order(self)

    def _specs(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        return (((), torch.bool),)


def host_call(name: str, callee: Callee, tensors: Sequence[Any], written: Sequence[Any], device: Device) -> Any:
    """The expression of a call (bridge/primitive/graph_calls.py), and the positions of the tensors as `launch` gets
    them.

    Args:
        name, callee, device: see HostCall.
        tensors: what it takes.
        written: the Parameters that it writes to, which follow those. Each is an argument of its own: MindSpore then
            reads it again after the call.
    """
    groups: dict[Any, list[int]] = {}
    for position, tensor in enumerate(tensors):
        groups.setdefault(tensor.dtype, []).append(position)
    read = [tuple(tensors[position] for position in group) for group in groups.values()]
    count = len(tensors) + len(written)
    call = Call(HostCall(name, callee, count, device), [*read, *written])
    order = [position for group in groups.values() for position in group]
    return Item(call, 0), [*order, *range(len(tensors), count)]


@functools.cache
def _install(device: Device) -> None:
    """Have the library for a device call back into Python."""
    library().ms_ext_set_host_function(_call)
    function = ctypes.cast(library().ms_ext_call_host, ctypes.c_void_p)
    devices.load(SHARED[device]).ms_ext_set_host_call(function)


def _call(number: int, addresses: tuple[int, ...]) -> None:
    callee = _callees.get(number)
    if callee is None:
        raise RuntimeError("the object that the graph calls is gone")
    again = callee.launch(addresses)
    if again is not None:
        library().ms_ext_repeat_host_call(number, again)
