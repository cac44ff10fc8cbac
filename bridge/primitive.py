"""The MindSpore primitives: an ATen overload with given non-tensor arguments, and gradients of it."""
from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from mindspore import ops
from mindspore._c_expression.typing import TensorType
from mindspore.ops.primitive import _run_op

from bridge import bprops, devices, direct, dtypes, gradient, graph, layouts, precision
from bridge.devices import LIBRARIES
from bridge.encoding import redraws
from bridge.gradient import Level
from bridge.graph_calls import Call, Item, graph_call
from bridge.infer import Spec, infer_unknown
from bridge.schema import SHARED, SHIMS, label, schema

_MAX_INFERRED = 4096

graph.install(devices.load(SHARED["CPU"]))
layouts.install(devices.load(SHARED["CPU"]))
devices.load(SHIMS["CPU"])


def _element_type(dtype: Any) -> Any:
    """The dtype of the elements: of a tensor, of a Parameter (a Ref to a tensor), or of what MindSpore types as a plain
    number, such as `Tensor(0.3)`."""
    while hasattr(dtype, "element_type"):
        dtype = dtype.element_type()
    return dtype


# MindSpore's PyNative executor does not take calls from several threads at once.
one_at_a_time = threading.RLock()


def run(primitive: Kernel, tensors: Sequence[Any]) -> Any:
    """Call a primitive in PyNative mode."""
    with one_at_a_time:
        if primitive.has_direct and direct.possible():
            results = primitive.direct(tensors)
            if results is not None:
                return results
        return _run_op(primitive, "Custom", tensors)


def _unused(*_: Any) -> None:
    """Custom wants inference functions; Kernel.__infer__ replaces both."""


class Kernel(ops.Custom):
    """A kernel of one of the libraries: tensors in, tensors out.

    MindSpore tells primitives apart by their attributes, so everything that a result depends on besides the tensors
    stands in `name` and `text`.

    Args:
        name: what infers and what errors are about: an overload, as in "add.Tensor", or a gradient of one.
        text: the non-tensor arguments (bridge/encoding.py).
        function: where the kernel is, as "library.so:symbol".
        device: "GPU" if it is a CUDA kernel, else "CPU".
        single: whether the result is one tensor rather than a tuple.
        input_dtypes: in graph mode, the names of the inputs' dtypes; shapes are then inferred in C++ (bridge/graph.py),
            which can leave dimensions unknown. PyNative mode infers by `__infer__` alone, which costs less.
    """

    def __init__(
        self, name: str, text: str, function: str, device: str, single: bool, input_dtypes: str | None
    ) -> None:
        infer_shape = _unused if input_dtypes is None else None
        super().__init__(f"{LIBRARIES / function}", infer_shape, _unused, "aot")
        self.single = single
        if device != devices.target():
            self.set_device(device)  # MindSpore moves the data
        self.add_prim_attr("aten_op", name)
        self.add_prim_attr("aten_args", text)
        self.add_prim_attr("aten_device", device)
        if device == devices.target() == "CPU":
            direct.leave_queues()
        if input_dtypes is not None:
            self.add_prim_attr("aten_dtypes", input_dtypes)
            self.add_prim_attr("reg_op_name", name)
            self.add_prim_attr("multi_output", not single)
        self._inferred: dict[Any, dict[str, Any]] = {}
        self.function = function
        self.amp_name = ""  # for mixed precision (bridge/precision.py); nothing if the inputs stay as they are
        self.kept: list[int] = []
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
        """The short way (bridge/direct.py); only where `has_direct`."""
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
        )

    def __infer__(self, *inputs: dict[str, Any]) -> dict[str, Any]:
        key = tuple([(*x["shape"], _element_type(x["dtype"])) for x in inputs])
        result = self._inferred.get(key)
        if result is None:
            if len(self._inferred) >= _MAX_INFERRED:
                self._inferred.clear()
            result = self._inferred[key] = self._infer(key)
        return result

    def _infer(self, key: tuple[Any, ...]) -> dict[str, Any]:
        if "aten_dtypes" not in self.attrs and any(size < 0 for k in key for size in k[:-1]):
            raise ValueError(f"{label(self.aten_op)}: a tensor without data, of unknown shape, has no result")
        inputs = tuple((k[:-1], dtypes.to_torch(k[-1])) for k in key)
        specs = self._specs(inputs)
        shapes = tuple(shape for shape, _ in specs)
        types = tuple(TensorType(dtypes.to_mindspore(dtype)) for _, dtype in specs)
        if self.single:
            return {"shape": shapes[0], "dtype": types[0], "value": None}
        return {"shape": shapes, "dtype": types, "value": None}

    def _specs(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        return infer_unknown(self.aten_op, self.aten_args, self.aten_device, inputs)


@functools.lru_cache(maxsize=_MAX_INFERRED)
def graph_primitive(kind: type[Kernel], *args: Any) -> Kernel:
    """The one primitive of graph mode with these arguments: MindSpore compiles the gradient of equal calls once."""
    return kind(*args)


class ATen(Kernel):
    """An ATen overload, or a kernel that bridge.kernels declares.

    Args:
        name: the overload, as in "add.Tensor", or a declared name, as in "custom::sigmoid".
        text, device, input_dtypes: see Kernel.
    """

    def __init__(self, name: str, text: str, device: str, input_dtypes: str | None = None) -> None:
        op = schema(name)
        super().__init__(name, op.kernel_text(text), op.function(device), device, op.single, input_dtypes)
        self.init_attrs = {"name": name, "text": text, "device": device, "input_dtypes": input_dtypes}
        self.draws = op.random
        if op.random or op.writes:
            # Two draws are two draws, even with equal arguments, and in the order in which the program makes them. So
            # are two updates of running statistics, also where nobody uses the results.
            self.add_prim_attr("side_effect_mem", True)
        self.has_direct = self.has_direct and not op.reads_attributes
        self.amp_name = precision.amp_name(op)
        self.kept = precision.kept(op, text)
        self.composite = op.gradient == "composite"
        self.aliases: dict[Any, Any] = {}  # by shapes and dtypes, for a composite (bridge/operator.py)
        inputs = gradient.op_inputs(text) - redraws(text)
        for key, value in op.attributes(text).items():
            self.add_prim_attr(key, value)
        differentiate = op.bprop(text, device) or Differentiate(name, text, device, redraws=op.redraws)
        self.differentiate_by(inputs, differentiate)


class Gradient(Kernel):
    """A gradient of an ATen overload, of any order.

    Args:
        name, text: the overload and its arguments.
        device, input_dtypes: see Kernel.
        outputs, asked: see bridge.gradient.Level.
        inputs: how many tensors it takes.
    """

    def __init__(
        self,
        name: str,
        text: str,
        device: str,
        outputs: int,
        asked: tuple[str, ...],
        inputs: int,
        input_dtypes: str | None = None,
    ) -> None:
        kernel_text = Level(name, text, outputs, asked).kernel_text(inputs)
        function = f"{SHARED[device]}:aten_gradient"
        super().__init__(gradient.PREFIX + name, kernel_text, function, device, False, input_dtypes)
        self.init_attrs = {
            "name": name, "text": text, "device": device, "outputs": outputs, "asked": asked, "inputs": inputs,
            "input_dtypes": input_dtypes,
        }  # fmt: skip
        self.draws = redraws(text)
        self.differentiate_by(inputs, Differentiate(name, text, device, outputs, asked))


class Shaped(Kernel):
    """A differentiable overload whose results' shapes follow from data: in PyNative mode, when they are known.

    Args:
        name, text: the overload and its arguments.
        device: see Kernel.
        inputs: how many tensors it takes; for a draw, the last is the generator's state.
        results: shape and dtype of each result.
    """

    def __init__(self, name: str, text: str, device: str, inputs: int, results: tuple[Spec, ...]) -> None:
        kernel_text = Level(name, text, len(results), ()).kernel_text(inputs)
        super().__init__(name, kernel_text, f"{SHARED[device]}:aten_gradient", device, False, None)
        self.init_attrs = {"name": name, "text": text, "device": device, "inputs": inputs, "results": results}
        self.add_prim_attr("aten_results", repr(results))
        self.draws = redraws(text)
        self.results = results
        self.differentiate_by(inputs, Differentiate(name, text, device))

    def _specs(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        return self.results


class Unsized(Kernel):
    """An overload whose results' shapes depend on the data, in graph mode: ms_ext/data_dependent.cpp tells them after
    each launch.

    Args:
        name, text, device, input_dtypes: see Kernel. The device is the CPU.
    """

    def __init__(self, name: str, text: str, device: str, input_dtypes: str) -> None:
        function = f"{SHARED[device]}:aten_gradient"
        kernel = gradient.UNSIZED_PREFIX + name
        super().__init__(kernel, self._kernel_text(name, text), function, device, False, input_dtypes)
        self.init_attrs = {"name": name, "text": text, "device": device, "input_dtypes": input_dtypes}
        for attribute in ("reg_op_name", "uniq_name"):  # by the latter MindSpore looks for the kernel
            self.add_prim_attr(attribute, "aten_data_dependent")
        self.add_prim_attr("aten_label", name)
        self.differentiate_by(gradient.op_inputs(text), Differentiate(name, text, device))

    @staticmethod
    def _kernel_text(name: str, text: str) -> str:
        return Level(name, text, 0, ()).kernel_text(gradient.op_inputs(text))

    @classmethod
    def infer(cls, name: str, text: str, device: str, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        """What is known of the results (bridge/infer.py)."""
        return infer_unknown(gradient.UNSIZED_PREFIX + name, cls._kernel_text(name, text), device, inputs)


class Backward(Kernel):
    """The first-order gradient of an ATen overload by its own formula, without running the overload again.

    Its inputs are the overload's tensors, the results if the formula uses them, and the results' gradients.

    Args:
        name, text: the overload and its arguments.
        device, input_dtypes: see Kernel.
        results: how many results the overload has.
        asked: which gradients, see bridge.gradient.Level.
    """

    def __init__(
        self, name: str, text: str, device: str, results: int, asked: str, input_dtypes: str | None = None
    ) -> None:
        op = schema(name)
        assert op.backward is not None
        uses_results = op.backward["uses_results"]
        kernel_text = gradient.backward_text(name, text, results, uses_results, op.backward["tracked"], asked)
        function = f"{SHIMS[device]}:aten_{op.shim}_derivative"
        super().__init__(gradient.BACKWARD_PREFIX + name, kernel_text, function, device, False, input_dtypes)
        self.init_attrs = {
            "name": name, "text": text, "device": device, "results": results, "asked": asked,
            "input_dtypes": input_dtypes,
        }  # fmt: skip
        inputs = gradient.op_inputs(text)
        dropped = (inputs, inputs + results * uses_results)
        differentiate = Differentiate(name, text, device, results, (asked,), dropped)
        self.differentiate_by(dropped[1] + results, differentiate)


def _differentiable(dtype: Any) -> bool:
    torch_dtype = dtypes.to_torch(dtype)
    return torch_dtype.is_floating_point or torch_dtype.is_complex


def wanted_gradients(
    name: str, inputs: Sequence[Any], cotangents: Sequence[Any], required: Sequence[bool]
) -> tuple[int, ...]:
    """For each input of the kernel below, the position of its gradient among the results; -1 if that is zero.

    A gradient is zero for integers, for inputs that do not require one, and, as in PyTorch, where the overload's
    results are integers or constants.

    Args:
        name: the overload.
        inputs, cotangents: the dtypes of the kernel's inputs and of its results.
        required: for each input, whether its gradient is asked for.

    Raises:
        RuntimeError: PyTorch has no derivative for the overload.
    """
    wanted = [needed and _differentiable(dtype) for dtype, needed in zip(inputs, required, strict=True)]
    op = schema(name)
    if op.gradient == "constant" or not any(wanted) or not any(map(_differentiable, cotangents)):
        return (-1,) * len(wanted)
    if not op.differentiable:
        raise RuntimeError(f"{label(name)} is not differentiable: {op.gradient_reason}")
    return tuple(sum(wanted[:i]) if one else -1 for i, one in enumerate(wanted))


class Differentiate:
    """The `bprop` of a kernel: the gradients of its inputs from inputs, results and the results' gradients.

    Args:
        name, text: the overload and its arguments.
        device: where the kernel runs, and so where its gradient does.
        outputs: for the bprop of a gradient, how many results the overload has.
        asked: for the bprop of a gradient, see bridge.gradient.Level; empty for that of the overload.
        dropped: the range of inputs that the gradient above does not take: results that a backward shim was given.
        redraws: whether the last result is the generator's state, which the gradient takes to draw the same again.
    """

    __ms_class__ = True  # as in bridge/operator.py
    __parse_method__ = "_call_in_graph"

    def __init__(
        self,
        name: str,
        text: str,
        device: str,
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
        backward = None if asked else schema(name).backward
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
        required = [getattr(x, "_requires_grad", True) for x in kept]
        wanted = wanted_gradients(self.name, [x.dtype for x in kept], [x.dtype for x in cotangents], required)
        found: list[Any] = []
        if max(wanted, default=-1) >= 0:
            asked = "" if all(required) else "".join(str(int(one)) for one in required) + "1" * self.redraws
            key = (len(tensors), asked)
            primitive = self._primitives.get(key)
            if primitive is None:
                primitive = self._primitives[key] = self._primitive(len(cotangents), len(tensors), asked)
            found = run(primitive, tensors)
        results = [None if i < 0 else found[i] for i in wanted]
        results[self.first : self.first] = [None] * (self.last - self.first)
        return tuple(results)

    def _tensors(self, inputs: Sequence[Any], out: Any, dout: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """The inputs that have gradients, the results' gradients, and all that the gradient's primitive takes."""
        kept = [*inputs[: self.first], *inputs[self.last :]]
        cotangents = _listed(dout)
        passed = []
        if self.redraws:
            cotangents, passed = cotangents[:-1], [out[-1]]
        elif self.passes_results:
            passed = _listed(out)
        return kept, cotangents, [*kept, *passed, *cotangents]

    def _primitive(self, cotangents: int, inputs: int, asked: str, *input_dtypes: str) -> Kernel:
        make: Any = graph_primitive if input_dtypes else graph_primitive.__wrapped__
        if self.by_formula:
            return make(Backward, self.name, self.text, self.device, cotangents, asked, *input_dtypes)
        outputs = self.outputs if self.level else cotangents
        every_asked = (*self.asked, asked)
        return make(Gradient, self.name, self.text, self.device, outputs, every_asked, inputs, *input_dtypes)

    def _call_in_graph(self, inputs, out, dout):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self._graph_call(inputs, out, dout)

    @functools.cached_property
    def _graph_call(self) -> Any:
        return graph_call(f"gradient of {self.name}", self._plan_in_graph)

    def _plan_in_graph(self, inputs: list[Any], out: Any, dout: Any) -> Any:
        """The expression of the gradients (bridge/graph_calls.py)."""
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


def _listed(value: Any) -> list[Any]:
    """A result or several as a list."""
    return list(value) if isinstance(value, (tuple, list)) else [value]
