"""What differentiates an overload, and the primitives of its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindspore import ops

from bridge import _mindspore
from bridge.infer.trial import Spec
from bridge.op import dtypes
from bridge.op.encoding import Text
from bridge.op.overload import ATenOverload, GradientKind, no_gradient, overload
from bridge.op.table import SHARED, Device
from bridge.primitive import level
from bridge.primitive.graph_calls import Call, Item, PlannedBprop
from bridge.primitive.kernel import Kernel, graph_primitive, launch
from bridge.primitive.level import Level


class Gradient(Kernel):
    """A gradient of an ATen overload, of any order.

    Args:
        name, text: the overload and its arguments.
        device, input_dtypes: see Kernel.
        outputs, asked: see bridge.primitive.level.Level.
        inputs: how many tensors it takes.
    """

    def __init__(
        self,
        name: str,
        text: Text,
        device: Device,
        outputs: int,
        asked: tuple[str, ...],
        inputs: int,
        input_dtypes: str | None = None,
    ) -> None:
        kernel_text = Level(name, text, outputs, asked).kernel_text(inputs)
        function = f"{SHARED[device]}:aten_gradient"
        super().__init__(level.GRADIENT_PREFIX + name, kernel_text, function, device, False, input_dtypes)
        self.init_attrs = {
            "name": name, "text": text, "device": device, "outputs": outputs, "asked": asked, "inputs": inputs,
            "input_dtypes": input_dtypes,
        }  # fmt: skip
        self.draws = text.redraws
        self.differentiate_by(inputs, Differentiate(name, text, device, outputs, asked))

    def _specs(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        return level.infer(self.aten_args, inputs)


class Backward(Kernel):
    """The first-order gradient of an ATen overload by its own formula, without running the overload again.

    Its inputs are the overload's tensors, the results if the formula uses them, and the results' gradients.

    Args:
        name, text: the overload and its arguments.
        device, input_dtypes: see Kernel.
        results: how many results the overload has.
        asked: which gradients, see bridge.primitive.level.Level.
    """

    def __init__(
        self, name: str, text: Text, device: Device, results: int, asked: str, input_dtypes: str | None = None
    ) -> None:
        op = overload(name)
        assert isinstance(op, ATenOverload) and op.backward is not None
        uses_results = op.backward["uses_results"]
        kernel_text = level.backward_text(name, text, results, uses_results, op.backward["tracked"], asked)
        function = op.derivative(device)
        super().__init__(level.BACKWARD_PREFIX + name, kernel_text, function, device, False, input_dtypes)
        self.init_attrs = {
            "name": name, "text": text, "device": device, "results": results, "asked": asked,
            "input_dtypes": input_dtypes,
        }  # fmt: skip
        inputs = text.inputs
        dropped = (inputs, inputs + results * uses_results)
        differentiate = Differentiate(name, text, device, results, (asked,), dropped)
        self.differentiate_by(dropped[1] + results, differentiate)

    def _specs(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        return level.infer_backward(self.aten_args, inputs)


def _differentiable(dtype: Any) -> bool:
    torch_dtype = dtypes.to_torch(dtype)
    return torch_dtype.is_floating_point or torch_dtype.is_complex


def wanted_gradients(
    name: str, input_dtypes: Sequence[Any], result_dtypes: Sequence[Any], required: Sequence[bool]
) -> tuple[int, ...]:
    """For each input of the kernel below, the position of its gradient among the results; -1 if that is zero.

    A gradient is zero for integers, for inputs that do not require one, and, as in PyTorch, where the overload's
    results are integers or constants.

    Args:
        name: the overload.
        input_dtypes, result_dtypes: of the kernel.
        required: for each input, whether its gradient is asked for.

    Raises:
        RuntimeError: PyTorch has no derivative for the overload.
    """
    wanted = [needed and _differentiable(dtype) for dtype, needed in zip(input_dtypes, required, strict=True)]
    op = overload(name)
    if op.gradient is GradientKind.CONSTANT or not any(wanted) or not any(map(_differentiable, result_dtypes)):
        return (-1,) * len(wanted)
    if not op.differentiable:
        raise no_gradient(op)
    return tuple(sum(wanted[:i]) if one else -1 for i, one in enumerate(wanted))


class Differentiate(PlannedBprop):
    """The `bprop` of a kernel: the gradients of its inputs from inputs, results and the results' gradients.

    Args:
        name, text: the overload and its arguments.
        device: where the kernel runs, and so where its gradient does.
        outputs: for the bprop of a gradient, how many results the overload has.
        asked: for the bprop of a gradient, see bridge.primitive.level.Level; empty for that of the overload.
        dropped: the range of inputs that the gradient above does not take: results that a backward shim was given.
        redraws: whether the last result is the generator's state, which the gradient takes to draw the same again.
    """

    def __init__(
        self,
        name: str,
        text: Text,
        device: Device,
        outputs: int = 0,
        asked: tuple[str, ...] = (),
        dropped: tuple[int, int] = (0, 0),
        redraws: bool = False,
    ) -> None:
        self.name = name
        self.text = text
        self.device = device
        self.outputs = outputs
        self.asked = asked
        self.level = len(asked)
        self.first, self.last = dropped
        self.redraws = redraws
        backward = None if asked else overload(name).backward
        self.by_formula = backward is not None
        self.passes_results = backward is not None and backward["uses_results"]
        self.uses_results = self.passes_results or redraws
        self._primitives: dict[tuple[int, str], Kernel] = {}

    def __call__(self, inputs: tuple[Any, ...], out: Any, dout: Any) -> tuple[Any, ...]:
        found = self.gradients(inputs, out, dout)
        return tuple(ops.zeros_like(x) if one is None else one for x, one in zip(inputs, found, strict=True))

    def gradients(self, inputs: tuple[Any, ...], out: Any, dout: Any) -> tuple[Any, ...]:
        """The same with None for zeros."""
        kept, cotangents, tensors = self._tensors(inputs, out, dout)
        required = [_mindspore.requires_gradient(x) for x in kept]
        wanted = wanted_gradients(self.name, [x.dtype for x in kept], [x.dtype for x in cotangents], required)
        found: list[Any] = []
        if max(wanted, default=-1) >= 0:
            asked = "" if all(required) else "".join(str(int(one)) for one in required) + "1" * self.redraws
            key = (len(tensors), asked)
            primitive = self._primitives.get(key)
            if primitive is None:
                primitive = self._primitives[key] = self._primitive(len(cotangents), len(tensors), asked)
            found = launch(primitive, tensors)
        results = [None if i < 0 else found[i] for i in wanted]
        results[self.first : self.first] = [None] * (self.last - self.first)
        return tuple(results)

    def _tensors(self, inputs: Sequence[Any], out: Any, dout: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """The inputs that have gradients, the results' gradients, and all that the gradient's primitive takes."""
        kept = [*inputs[: self.first], *inputs[self.last :]]
        cotangents = listed(dout)
        passed = []
        if self.redraws:
            cotangents, passed = cotangents[:-1], [out[-1]]
        elif self.passes_results:
            passed = listed(out)
        return kept, cotangents, [*kept, *passed, *cotangents]

    def _primitive(self, cotangents: int, inputs: int, asked: str, *input_dtypes: str) -> Kernel:
        make: Any = graph_primitive if input_dtypes else graph_primitive.__wrapped__
        if self.by_formula:
            return make(Backward, self.name, self.text, self.device, cotangents, asked, *input_dtypes)
        outputs = self.outputs if self.level else cotangents
        every_asked = (*self.asked, asked)
        return make(Gradient, self.name, self.text, self.device, outputs, every_asked, inputs, *input_dtypes)

    def _plan_in_graph(self, inputs: list[Any], out: Any, dout: Any) -> Any:
        kept, cotangents, tensors = self._tensors(inputs, out, dout)
        every = (True,) * len(kept)
        wanted = wanted_gradients(self.name, [x.dtype for x in kept], [x.dtype for x in cotangents], every)
        results: list[Any] = [Call(ops.zeros_like, [x]) for x in kept]
        if max(wanted, default=-1) >= 0:
            types = dtypes.names(x.dtype for x in tensors)
            call = Call(self._primitive(len(cotangents), len(tensors), "", types), tensors)
            results = [zeros if i < 0 else Item(call, i) for zeros, i in zip(results, wanted, strict=True)]
        results[self.first : self.first] = [Call(ops.zeros_like, [x]) for x in inputs[self.first : self.last]]
        return tuple(results)


def listed(value: Any) -> list[Any]:
    """A result or several as a list."""
    return list(value) if isinstance(value, (tuple, list)) else [value]
