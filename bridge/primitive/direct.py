"""The short way of a call: past MindSpore's primitives, in PyNative mode.

A primitive asks Python for shapes, and waits where MindSpore's own operators and it take turns.
ms_ext/mindspore/python/kernel.h hands the same shim, and what differentiates it, to MindSpore's interfaces in C++
instead.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from bridge import _mindspore
from bridge.infer.trial import Spec
from bridge.op import devices, dtypes
from bridge.op.devices import LIBRARIES
from bridge.op.table import Device

_PATH = LIBRARIES / "_pynative.so"

Infer = Callable[[tuple[Spec, ...]], tuple[Spec, ...]]


@functools.cache
def _module() -> Any:
    spec = importlib.util.spec_from_file_location("_pynative", _PATH)
    assert spec is not None and spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        words = f"bridge was built for another MindSpore: calls are slower until it is built again ({error})"
        warnings.warn(words, stacklevel=2)
        return None
    return module


def is_built() -> bool:
    """Whether there is a short way: the bridge was built for this MindSpore. Says so once if it was not."""
    return _module() is not None


@functools.cache
def leave_queues() -> None:
    """On a CPU, have MindSpore's own operators, gradients and graphs in PyNative mode run on the thread that calls too.

    MindSpore passes them on to threads that spin for a millisecond or two after each task, and so keep cores from
    PyTorch's threads. This is what its switch MS_DEV_HOST_BLOCKING_RUN=1 does; 0 keeps its threads.
    """
    if is_built() and os.environ.get("MS_DEV_HOST_BLOCKING_RUN") != "0":
        _module().leave_queues()


def possible() -> bool:
    """Whether a call may take the short way now."""
    return not _mindspore.jit_context()


def graph_location() -> str:
    """Where in the program MindSpore is while it compiles a graph, in its own form: a paragraph for each call; empty if
    the bridge was built for another MindSpore."""
    return _module().graph_location() if is_built() else ""


def graph_call(name: str, plan: Callable[..., Any]) -> Any:
    """What MindSpore's compiler calls for the expression of a call in a graph (bridge/primitive/graph_calls.py).

    Raises RuntimeError if the bridge was built for another MindSpore.
    """
    if not is_built():
        raise RuntimeError("bridge was built for another MindSpore: graph mode needs it built again")
    return _module().GraphCall(name, plan)


def own_graph(graph: Any) -> Callable[..., Any] | None:
    """What runs a graph that MindSpore has compiled, if all of its kernels are the bridge's and the CPU's
    (ms_ext/mindspore/python/own_graph.cpp); else None."""
    return _module().OwnGraph.of(graph) if is_built() and devices.target() == "CPU" else None  # type: ignore[no-any-return]


def places(graph: Any, name: str) -> list[list[str]]:
    """Where in the program a graph that MindSpore has compiled calls the operator with this name (`Kernel`'s), in
    MindSpore's own form and innermost first, for each call; none if the bridge was built for another MindSpore."""
    return _module().places(graph, name) if is_built() else []  # type: ignore[no-any-return]


def infer_at_run_time() -> None:
    """Have MindSpore infer the bridge's operators in a graph with an object of Python's in it, whose kernels it makes
    when the graph runs (ms_ext/mindspore/python/run_time_inference.cpp); once in the process."""
    if is_built():
        _module().infer_at_run_time()


def module(name: str, take_apart: Callable[[Any], Any], is_torch_code: bool) -> Any:
    """What runs a PyTorch module of that name in PyNative mode (ms_ext/mindspore/python/module.cpp).

    Args:
        take_apart: gives the tensors of what the module returns (`results_with_data` in bridge/programs/tree.py).
        is_torch_code: whether it runs nobody's Python but PyTorch's.

    Raises RuntimeError if the bridge was built for another MindSpore.
    """
    if not is_built():
        raise RuntimeError("bridge was built for another MindSpore: a module needs it built again")
    ctypes.CDLL(str(LIBRARIES / "libms_ext_python.so"))
    return _module().Module(name, take_apart, is_torch_code)


def address(tensor: Any) -> int:
    """Where a tensor of MindSpore's is now, on whichever device: nothing waits for what is still to write to it."""
    return int(_module().address(tensor))


def is_assigned(parameter: Any, tensor: Any) -> bool:
    """Whether PyTorch's tensor for a Parameter has got other data (`tensor.data = x`) since both were the same."""
    return bool(_module().is_assigned(parameter, tensor))


def is_any_assigned_in(graph: Any) -> Callable[[], bool | None]:
    """What tells, before each run of a graph that MindSpore has compiled, whether PyTorch may have assigned something
    in a module that has a Parameter of the graph; None if MindSpore has dropped the graph. On a GPU it waits for what
    PyTorch writes on a stream of its own."""
    return _module().ModulesOfGraph(graph).is_any_assigned  # type: ignore[no-any-return]


def ones_like(tensor: Any, on_host: bool) -> Any:
    """Ones as MindSpore's tensor, on the CPU or on MindSpore's GPU; None if the dtype of the tensor has no gradient."""
    return _module().ones_like(tensor, on_host)


def leave_out(tensors: Sequence[Any]) -> None:
    """Have MindSpore take these tensors, which it has just begun to record a function for, for constants of it. Those
    that follow from others which it has recorded stay what they are."""
    _module().leave_out(tensors)


def in_pool() -> Any:
    """A context in which large tensors that PyTorch makes on this thread and the CPU lie in the memory that MindSpore
    keeps for its own, so that they leave no gaps in the C library's."""
    return _module().InPool()


def has_mixed_precision() -> bool:
    """Whether a cell that runs now asks for `Cell.to_float` or `mindspore.amp`."""
    return is_built() and bool(_module().has_mixed_precision())


def cast(tensors: Sequence[Any], amp_name: str, kept: list[int]) -> Sequence[Any]:
    """The tensors in the dtypes that `Cell.to_float` and `mindspore.amp` ask for, as the short way casts them.

    Args:
        tensors: the inputs of an operator.
        amp_name: the operator in the lists of `mindspore.amp`.
        kept: the positions of those that stay as they are.
    """
    if has_mixed_precision():
        return _module().cast(list(tensors), amp_name, kept)
    return tensors


def kernel(
    function: str, device: Device, draws: bool, name: str, text: str, single: bool, infer: Infer, bprop: Any,
    amp_name: str, kept: list[int], recordable: bool,
) -> Callable[[Sequence[Any]], Any]:  # fmt: skip
    """The short way of a primitive, which takes its tensors and gives its results; None if these tensors have to go the
    other way.

    Args:
        function, device, name, text, single: see bridge.primitive.kernel.Kernel.
        draws: whether it uses PyTorch's generator, which the caller may use next.
        infer: shape and dtype of each result from those of the tensors; raises what the caller shall see.
        bprop: what differentiates the kernel (see bridge.primitive.kernel.Kernel).
        amp_name, kept: see `cast`.
        recordable: whether PyTorch's autograd can record the call: `bprop` is then for second and higher orders.
    """

    def infer_names(inputs: list[tuple[tuple[int, ...], str]]) -> list[tuple[tuple[int, ...], str]]:
        specs = infer(tuple((shape, dtypes.TORCH_DTYPES[dtype]) for shape, dtype in inputs))
        return [(shape, dtypes.name(dtype)) for shape, dtype in specs]

    library, _, symbol = function.rpartition(":")
    path, on_cpu = str(LIBRARIES / library), device == "CPU"
    # On a GPU, kernels are launched while Python goes on. A CPU has no cores to spare for threads that wait.
    at_once = on_cpu or draws
    return _module().Kernel(
        path, symbol, on_cpu, at_once, name, text, single, infer_names, bprop.gradients, bprop.uses_results,
        amp_name, kept, recordable,
    )  # fmt: skip
