"""A MindSpore primitive over a kernel of one of the libraries, and its call in PyNative mode."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from mindspore import ops

from bridge import _mindspore
from bridge.infer.trial import Spec
from bridge.op import devices, dtypes
from bridge.op.devices import LIBRARIES
from bridge.op.schema import label
from bridge.op.table import Device
from bridge.primitive import bprops, direct
from bridge.primitive.launch_errors import raise_in_own_class

_MAX_KEPT = 4096


def _element_type(dtype: Any) -> Any:
    """The dtype of the elements: of a tensor, of a Parameter (a Ref to a tensor), or of what MindSpore types as a plain
    number, such as `Tensor(0.3)`."""
    while hasattr(dtype, "element_type"):
        dtype = dtype.element_type()
    return dtype


# MindSpore's PyNative executor does not take calls from several threads at once.
one_at_a_time = threading.RLock()


def launch(primitive: Kernel, tensors: Sequence[Any]) -> Any:
    """Call a primitive in PyNative mode."""
    try:
        with one_at_a_time:
            if primitive.has_direct and direct.possible():
                results = primitive.direct(tensors)
                if results is not None:
                    return results
            return _mindspore.run_primitive(primitive, tensors)
    except RuntimeError as error:
        raise_in_own_class(error)


def launch_again(primitive: Kernel, tensors: Sequence[Any]) -> Any:
    """The same; None for tensors of other shapes or dtypes than those of its first launch, or if only the other way is
    possible."""
    try:
        with one_at_a_time:
            return primitive.direct.again(tensors) if direct.possible() else None
    except RuntimeError as error:
        raise_in_own_class(error)


def keep(found: dict[Any, Any], key: Any, value: Any) -> None:
    """Remember a value, and forget all others where they have become too many."""
    if len(found) >= _MAX_KEPT:
        found.clear()
    found[key] = value


def _unused(*_: Any) -> None:
    """Custom wants inference functions; Kernel.__infer__ replaces both."""


class Kernel(ops.Custom):
    """A kernel of one of the libraries: tensors in, tensors out.

    MindSpore tells primitives apart by their attributes, so everything that a result depends on besides the tensors
    stands in `name` and `text`.

    Args:
        name: what infers and what errors are about: an overload, as in "add.Tensor", or a gradient of one.
        text: the non-tensor arguments (bridge/op/encoding.py).
        function: where the kernel is, as "library.so:symbol".
        device: "GPU" if it is a CUDA kernel, else "CPU".
        single: whether the result is one tensor rather than a tuple.
        input_dtypes: in graph mode, the names of the inputs' dtypes; shapes are then inferred in C++
            (bridge/primitive/graph_shapes.py), which can leave dimensions unknown. PyNative mode infers only by
            `__infer__`, which costs less.

    Attributes:
        refused_in_vmap: why MindSpore cannot map it; empty if it can.
    """

    refused_in_vmap = ""

    def __init__(
        self, name: str, text: str, function: str, device: Device, single: bool, input_dtypes: str | None
    ) -> None:
        infer_shape = _unused if input_dtypes is None else None
        super().__init__(f"{LIBRARIES / function}", infer_shape, _unused, "aot")
        self.single = single
        if device != devices.target():
            self.set_device(device)  # MindSpore moves the data
        self.add_prim_attr("aten_op", name)
        self.add_prim_attr("aten_args", text)
        self.add_prim_attr("aten_device", device)
        if input_dtypes is not None:
            self.add_prim_attr("aten_dtypes", input_dtypes)
            _mindspore.infer_in_cpp(self, name, not single)
        self._inferred: dict[Any, dict[str, Any]] = {}
        self.function = function
        self.amp_name = (
            ""  # for mixed precision (bridge/primitive/precision.py); nothing if the inputs stay as they are
        )
        self.kept: list[int] = []
        self.recordable = False  # whether PyTorch's autograd can record the call, on the short way
        self.draws = False  # whether it uses PyTorch's generator, which the caller may use next
        self.has_direct = device == devices.target() and input_dtypes is None and direct.is_built()

    def differentiate_by(self, inputs: int, bprop: Any) -> None:
        """Say what differentiates the kernel, which has so many inputs.

        `bprop(inputs, out, dout)` gives their gradients, in both modes. The short way calls `bprop.gradients`, which
        gives None for those that are not asked for, with None as `out` unless `bprop.uses_results`.
        """
        self.differentiate = bprop
        self.bprop = bprops.make(inputs, bprop)

    @functools.cached_property
    def direct(self) -> Any:
        """The short way (bridge/primitive/direct.py); only where `has_direct`."""
        # The short way belongs to this primitive. Python's garbage collector does not see through it, so no circle.
        primitive = weakref.proxy(self)
        return direct.kernel(
            self.function,
            self.aten_device,
            self.draws,
            self.aten_op,
            self.aten_args,
            self.single,
            lambda inputs: primitive._specs(inputs),
            self.differentiate,
            self.amp_name,
            self.kept,
            self.recordable,
        )

    def __infer__(self, *inputs: dict[str, Any]) -> dict[str, Any]:
        key = tuple([(*x["shape"], _element_type(x["dtype"])) for x in inputs])
        result = self._inferred.get(key)
        if result is None:
            result = self._infer(key)
            keep(self._inferred, key, result)
        return result

    def _infer(self, key: tuple[Any, ...]) -> dict[str, Any]:
        if "aten_dtypes" not in self.attrs and any(size < 0 for k in key for size in k[:-1]):
            raise ValueError(f"{label(self.aten_op)}: a tensor without data, of unknown shape, has no result")
        inputs = tuple((k[:-1], dtypes.to_torch(k[-1])) for k in key)
        specs = self._specs(inputs)
        shapes = tuple(shape for shape, _ in specs)
        types = tuple(_mindspore.TensorType(dtypes.to_mindspore(dtype)) for _, dtype in specs)
        if self.single:
            return {"shape": shapes[0], "dtype": types[0], "value": None}
        return {"shape": shapes, "dtype": types, "value": None}

    def _specs(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        """Shape and dtype of each result."""
        raise NotImplementedError


@functools.lru_cache(maxsize=_MAX_KEPT)
def graph_primitive(kind: type[Kernel], *args: Any) -> Kernel:
    """The one primitive of graph mode with these arguments: MindSpore compiles the gradient of equal calls once."""
    return kind(*args)
