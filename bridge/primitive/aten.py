"""The primitives of an overload: with given non-tensor arguments, with shapes that are told, and without shapes."""

from __future__ import annotations

from typing import Any

from bridge import _mindspore
from bridge.infer.on_data import infer_on_data
from bridge.infer.trial import Spec
from bridge.infer.unknown import infer_unknown
from bridge.op.encoding import Text
from bridge.op.overload import GradientKind, overload
from bridge.op.table import SHARED, Device, Fact
from bridge.primitive import level, precision
from bridge.primitive.differentiate import Differentiate
from bridge.primitive.kernel import Kernel
from bridge.primitive.level import Level


class ATen(Kernel):
    """An ATen overload, or a kernel that bridge.kernels declares.

    Args:
        name: the overload, as in "add.Tensor", or a declared name, as in "custom::sigmoid".
        text, device, input_dtypes: see Kernel.
    """

    def __init__(self, name: str, text: Text, device: Device, input_dtypes: str | None = None) -> None:
        op = overload(name)
        super().__init__(name, op.kernel_text(text), op.function(device), device, op.single, input_dtypes)
        self.init_attrs = {"name": name, "text": text, "device": device, "input_dtypes": input_dtypes}
        self.text = text
        self.draws = op.random
        if op.random or Fact.WRITES_ARGUMENTS in op.facts:
            # Two draws are two draws, even with equal arguments, and in the order in which the program makes them. So
            # are two updates of running statistics, also where nobody uses the results.
            _mindspore.keep_in_order(self)
        if op.random:
            _mindspore.compute_once(self)
        self.has_direct = self.has_direct and not op.reads_attributes
        self.amp_name = precision.amp_name(op)
        self.kept = precision.kept(op, text)
        # On a CPU, where a call runs at once. What a draw saves for second order is more than PyTorch keeps of it, and
        # what writes to its arguments is given copies.
        writes = Fact.WRITES_ARGUMENTS in op.facts
        self.recordable = op.schema.is_aten and op.differentiable and device == "CPU" and not op.random and not writes
        self.composite = op.gradient is GradientKind.COMPOSITE and not self.recordable
        self.replacements: dict[Any, Any] = {}  # of a composite, by shapes and dtypes
        inputs = text.inputs - text.redraws
        for key, value in op.attributes(text).items():
            self.add_prim_attr(key, value)
        differentiate = op.bprop(text, device) or Differentiate(name, text, device, redraws=op.redraws)
        self.differentiate_by(inputs, differentiate)

    def _specs(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        return infer_unknown(self.aten_op, self.text, self.aten_device, inputs)


class Shaped(Kernel):
    """A differentiable overload whose results' shapes follow from data: in PyNative mode, when they are known.

    Args:
        name, text: the overload and its arguments.
        device: see Kernel.
        inputs: how many tensors it takes; for a draw, the last is the generator's state.
        results: shape and dtype of each result.
    """

    def __init__(self, name: str, text: Text, device: Device, inputs: int, results: tuple[Spec, ...]) -> None:
        kernel_text = Level(name, text, len(results), ()).kernel_text(inputs)
        super().__init__(name, kernel_text, f"{SHARED[device]}:aten_gradient", device, False, None)
        self.init_attrs = {"name": name, "text": text, "device": device, "inputs": inputs, "results": results}
        self.add_prim_attr("aten_results", repr(results))
        self.draws = text.redraws
        self.results = results
        self.differentiate_by(inputs, Differentiate(name, text, device))

    def _specs(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        return self.results


class Unsized(Kernel):
    """An overload whose results' shapes depend on the data, in graph mode:
    ms_ext/mindspore/python/data_dependent.cpp tells them after each launch.

    Args:
        name, text, device, input_dtypes: see Kernel. The device is the CPU.
    """

    def __init__(self, name: str, text: Text, device: Device, input_dtypes: str) -> None:
        function = f"{SHARED[device]}:aten_gradient"
        kernel = level.UNSIZED_PREFIX + name
        kernel_text = Level(name, text, 0, ()).kernel_text(text.inputs)
        super().__init__(kernel, kernel_text, function, device, False, input_dtypes)
        self.init_attrs = {"name": name, "text": text, "device": device, "input_dtypes": input_dtypes}
        _mindspore.use_registered_kernel(self, "aten_data_dependent")
        self.add_prim_attr("aten_label", name)
        self.text = text
        self.differentiate_by(text.inputs, Differentiate(name, text, device))

    def _specs(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        return infer_unknown(self.aten_label, self.text, self.aten_device, inputs, infer_on_data)
