"""Every private name of MindSpore that the package uses: what it does, and in which releases it was seen.

A new release of MindSpore is met here and in ms_ext/mindspore/; no other file names what is private there. All names
were seen in 2.8, 2.9 and 2.10.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from mindspore._c_expression.typing import TensorType as TensorType  # a tensor's type, as inference returns it
from mindspore.ops.primitive import _pynative_executor, _run_op
from mindspore.ops.primitive import jit_context as jit_context  # what a graph that is being traced holds, or None

# Whether PyNative mode records operators for a gradient.
is_recording: Callable[[], bool] = _pynative_executor.grad_flag
# Until PyNative mode has done what it was asked for; a GPU may still be at work.
wait: Callable[[], None] = _pynative_executor.sync


def run_primitive(primitive: Any, tensors: Sequence[Any]) -> Any:
    """Call a primitive of `ops.Custom` in PyNative mode."""
    return _run_op(primitive, "Custom", tensors)


def requires_gradient(tensor: Any) -> bool:
    """Whether the gradient of a bprop's input is asked for: PyNative mode marks those whose is not."""
    return getattr(tensor, "_requires_grad", True)


class CompiledAsMethod:
    """MindSpore's compiler takes an instance for its method `_call_in_graph`, as Python takes it for `__call__`."""

    __ms_class__ = True
    __parse_method__ = "_call_in_graph"


def infer_in_cpp(primitive: Any, name: str, several: bool) -> None:
    """Have graph mode infer the primitive by its library's InferShape. `several`: whether it gives a tuple."""
    primitive.add_prim_attr("reg_op_name", name)
    primitive.add_prim_attr("multi_output", several)


def keep_in_order(primitive: Any) -> None:
    """Have graph mode run every call of the primitive, each one, in the order of the program."""
    primitive.add_prim_attr("side_effect_mem", True)


def use_registered_kernel(primitive: Any, name: str) -> None:
    """Have graph mode run the primitive by the kernel that is registered under this name."""
    for attribute in ("reg_op_name", "uniq_name"):  # by the latter MindSpore looks for the kernel
        primitive.add_prim_attr(attribute, name)


def after_set_seed(call: Callable[[], None]) -> None:
    """Have `mindspore.set_seed` call this too.

    MindSpore has no hook for that. `set_seed` resets the seeds of its own kernels through one function, after it has
    handed the seed to `mindspore.dataset`.
    """
    seeds: Any = importlib.import_module("mindspore.common.seed")  # mindspore.common has a function of that name
    reset_kernels = seeds._reset_op_seed

    def reset() -> None:
        reset_kernels()
        call()

    seeds._reset_op_seed = reset


def seed_of(generator: Any) -> int:
    """The seed of a generator of MindSpore's, read from its memory: calling it would start MindSpore's run time."""
    return int(generator._seed.asnumpy())


class InPyNative:
    """A function that PyNative mode calls in place of a method. Graphs are compiled with the method: MindSpore's
    compiler takes the instance's `__call__`, Python the class's."""

    def __init__(self, function: Callable[..., Any], method: Callable[..., Any]) -> None:
        self.function = function
        self.__dict__["__call__"] = method
        self.__dict__["__ms_class__"] = True

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)
