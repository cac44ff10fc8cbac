"""The MindSpore primitives: an ATen overload with given non-tensor arguments, and gradients of it."""
from __future__ import annotations

import ctypes
import pathlib
import threading
from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import ops
from mindspore._c_expression.typing import TensorType
from mindspore.ops._primitive_cache import _get_cache_prim
from mindspore.ops.primitive import _run_op, constexpr

from bridge import bprops, dtypes, gradient, graph
from bridge.encoding import RANDOM_MARK
from bridge.gradient import Level
from bridge.infer import Spec, infer_unknown
from bridge.schema import Schema, label, schema

LIBRARIES = pathlib.Path(__file__).parent / "lib"
_MAX_INFERRED = 4096

# MindSpore's kernels close their library when they go; held here, they stay loaded for the next ones.
_shared = ctypes.CDLL(str(LIBRARIES / "libms_ext.so"))
_kernels = ctypes.CDLL(str(LIBRARIES / "libaten_cpu.so"))
graph.install(_shared)


def shared_library() -> ctypes.CDLL:
    """libms_ext.so, which all kernels share."""
    return _shared


def _element_type(dtype: Any) -> Any:
    """The dtype of the elements: of a tensor, of a Parameter (a Ref to a tensor), or of what MindSpore types as a plain
    number, such as `Tensor(0.3)`."""
    while hasattr(dtype, "element_type"):
        dtype = dtype.element_type()
    return dtype


# MindSpore's PyNative executor does not take calls from several threads at once.
_one_at_a_time = threading.RLock()


def run(primitive: Kernel, tensors: Sequence[Any]) -> Any:
    """Call a primitive in PyNative mode."""
    with _one_at_a_time:
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
        single: whether the result is one tensor rather than a tuple.
        input_dtypes: in graph mode, the names of the inputs' dtypes; shapes are then inferred in C++ (bridge/graph.py),
            which can leave dimensions unknown. PyNative mode infers by `__infer__` alone, which costs less.
    """

    def __init__(self, name: str, text: str, function: str, single: bool, input_dtypes: str | None) -> None:
        infer_shape = _unused if input_dtypes is None else None
        super().__init__(f"{LIBRARIES / function}", infer_shape, _unused, "aot")
        self.single = single
        self.add_prim_attr("aten_op", name)
        self.add_prim_attr("aten_args", text)
        if input_dtypes is not None:
            self.add_prim_attr("aten_dtypes", input_dtypes)
            self.add_prim_attr("reg_op_name", name)
            self.add_prim_attr("multi_output", not single)
        self._inferred: dict[Any, dict[str, Any]] = {}

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
        return infer_unknown(self.aten_op, self.aten_args, inputs)


def kernel_device(op: Schema) -> str:
    """Whose kernel runs on MindSpore's device: its own, or the CPU's if the operator has no other."""
    target = ms.get_context("device_target")
    return target if target in op.devices else "CPU"


class ATen(Kernel):
    """An ATen overload, or a kernel that bridge.kernels declares.

    Args:
        name: the overload, as in "add.Tensor", or a declared name, as in "custom::sigmoid".
        text, input_dtypes: see Kernel.
    """

    def __init__(self, name: str, text: str, input_dtypes: str | None = None) -> None:
        op = schema(name)
        device = kernel_device(op)
        super().__init__(name, op.kernel_text(text), op.function(device), op.single, input_dtypes)
        if device != ms.get_context("device_target"):
            self.add_prim_attr("primitive_target", device)
        self.init_attrs = {"name": name, "text": text, "input_dtypes": input_dtypes}
        if op.random:
            self.add_prim_attr("side_effect_hidden", True)  # two draws are two draws, even with equal arguments
        inputs = gradient.op_inputs(text) - text.endswith(RANDOM_MARK)
        for key, value in op.attributes(text).items():
            self.add_prim_attr(key, value)
        self.bprop = bprops.make(inputs, op.bprop(text) or Differentiate(name, text, 0, 0))


class Gradient(Kernel):
    """A gradient of an ATen overload, of any order.

    Args:
        name, text: the overload and its arguments.
        level, outputs: see bridge.gradient.Level.
        inputs: how many tensors it takes.
        input_dtypes: see Kernel.
    """

    def __init__(
        self, name: str, text: str, level: int, outputs: int, inputs: int, input_dtypes: str | None = None
    ) -> None:
        kernel_text = Level(name, text, level, outputs).kernel_text(inputs)
        super().__init__(gradient.PREFIX + name, kernel_text, "libms_ext.so:aten_gradient", False, input_dtypes)
        self.init_attrs = {
            "name": name, "text": text, "level": level, "outputs": outputs, "inputs": inputs,
            "input_dtypes": input_dtypes,
        }  # fmt: skip
        self.bprop = bprops.make(inputs, Differentiate(name, text, level, outputs))


class Shaped(Kernel):
    """A differentiable overload whose results' shapes follow from data: in PyNative mode, when they are known.

    Args:
        name, text: the overload and its arguments.
        inputs: how many tensors it takes.
        results: shape and dtype of each result.
    """

    def __init__(self, name: str, text: str, inputs: int, results: tuple[Spec, ...]) -> None:
        kernel_text = Level(name, text, 0, len(results)).kernel_text(inputs)
        super().__init__(name, kernel_text, "libms_ext.so:aten_gradient", False, None)
        self.init_attrs = {"name": name, "text": text, "inputs": inputs, "results": results}
        self.add_prim_attr("aten_results", repr(results))
        self.results = results
        self.bprop = bprops.make(inputs, Differentiate(name, text, 0, 0))

    def _specs(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        return self.results


class Backward(Kernel):
    """The first-order gradient of an ATen overload by its own formula, without running the overload again.

    Its inputs are the overload's tensors, the results if the formula uses them, and the results' gradients.

    Args:
        name, text: the overload and its arguments.
        results: how many results the overload has.
        input_dtypes: see Kernel.
    """

    def __init__(self, name: str, text: str, results: int, input_dtypes: str | None = None) -> None:
        op = schema(name)
        assert op.backward is not None
        uses_results = op.backward["uses_results"]
        kernel_text = gradient.backward_text(text, results, uses_results, op.backward["tracked"])
        function = f"libaten_cpu.so:aten_{op.shim}_derivative"
        super().__init__(gradient.BACKWARD_PREFIX + name, kernel_text, function, False, input_dtypes)
        self.init_attrs = {"name": name, "text": text, "results": results, "input_dtypes": input_dtypes}
        inputs = gradient.op_inputs(text)
        dropped = (inputs, inputs + results * uses_results)
        self.bprop = bprops.make(dropped[1] + results, Differentiate(name, text, 1, results, dropped))


def _differentiable(dtype: Any) -> bool:
    torch_dtype = dtypes.to_torch(dtype)
    return torch_dtype.is_floating_point or torch_dtype.is_complex


def wanted_gradients(inputs: int, types: Sequence[Any]) -> tuple[int, ...]:
    """For each input of the kernel below, the position of its gradient among the results; -1 if it has none."""
    found: list[int] = []
    for dtype in types[:inputs]:
        found.append(sum(place >= 0 for place in found) if _differentiable(dtype) else -1)
    return tuple(found)


@constexpr
def _differentiate_in_graph(name: str, types: tuple[Any, ...], inputs: int) -> Any:
    """The names of the dtypes, and `wanted_gradients`, found while MindSpore compiles."""
    refuse_if_not_differentiable(name)
    return dtypes.names(types), wanted_gradients(inputs, types)


def refuse_if_not_differentiable(name: str) -> None:
    """Raise RuntimeError if PyTorch has no derivative for the overload."""
    if schema(name).gradient == "none":
        raise RuntimeError(f"{label(name)} is not differentiable: PyTorch has no derivative for it")


class Differentiate:
    """The `bprop` of a kernel: the gradients of its inputs from inputs, results and the results' gradients.

    Args:
        name, text: the overload and its arguments.
        level: 0 for the bprop of the overload, n for that of its gradient of level n.
        outputs: at level 1 and above, how many results the overload has.
        dropped: the range of inputs that the gradient above does not take: results that a backward shim was given.
    """

    def __init__(self, name: str, text: str, level: int, outputs: int, dropped: tuple[int, int] = (0, 0)) -> None:
        self.name = name
        self.text = text
        self.level = level
        self.outputs = outputs
        self.first, self.last = dropped
        self.redraws = level == 0 and text.endswith(RANDOM_MARK)
        backward = schema(name).backward if level == 0 else None
        self.by_formula = backward is not None
        self.uses_results = backward is not None and backward["uses_results"]
        self._primitives: dict[int, Kernel] = {}
        # As in bridge/operator.py: MindSpore's compiler takes the instance's __call__, Python the class's.
        self.__dict__["__call__"] = self._call_in_graph
        self.__dict__["__ms_class__"] = True

    def __call__(self, inputs: tuple[Any, ...], out: Any, dout: Any) -> tuple[Any, ...]:
        refuse_if_not_differentiable(self.name)
        cotangents = tuple(dout) if isinstance(dout, (tuple, list)) else (dout,)
        outputs = self.outputs if self.level else len(cotangents) - self.redraws
        kept = (*inputs[: self.first], *inputs[self.last :])
        if self.redraws:
            tensors = (*kept, out[-1], *cotangents[:-1])
        elif self.uses_results:
            tensors = (*kept, *(out if isinstance(out, (tuple, list)) else (out,)), *cotangents)
        else:
            tensors = (*kept, *cotangents)
        wanted = wanted_gradients(len(kept), [x.dtype for x in kept])
        found: list[Any] = []
        if max(wanted, default=-1) >= 0:
            primitive = self._primitives.get(len(tensors))
            if primitive is None:
                primitive = self._primitives[len(tensors)] = self._primitive(outputs, len(tensors))
            found = run(primitive, tensors)
        results = [ops.zeros_like(x) if i < 0 else found[i] for x, i in zip(kept, wanted, strict=True)]
        results[self.first : self.first] = [ops.zeros_like(x) for x in inputs[self.first : self.last]]
        return tuple(results)

    def _primitive(self, outputs: int, inputs: int) -> Kernel:
        if self.by_formula:
            return Backward(self.name, self.text, outputs)
        return Gradient(self.name, self.text, self.level + 1, outputs, inputs)

    def _call_in_graph(self, inputs, out, dout):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        cotangents = dout if isinstance(dout, tuple) else (dout,)
        outputs = self.outputs if self.level > 0 else len(cotangents)
        kept = (*inputs[: self.first], *inputs[self.last :])
        tensors = (*kept, *cotangents)
        if self.redraws:
            outputs = len(cotangents) - 1
            tensors = (*kept, out[-1], *cotangents[:-1])
        elif self.uses_results:
            passed = out if isinstance(out, tuple) else (out,)
            tensors = (*kept, *passed, *cotangents)
        types = ()
        for x in tensors:
            types = (*types, x.dtype)
        plan = _differentiate_in_graph(self.name, types, len(kept))
        results = ()
        if max(plan[1]) < 0:
            for x in inputs:
                results = (*results, ops.zeros_like(x))
            return results
        if self.by_formula:
            found = _get_cache_prim(Backward)(self.name, self.text, outputs, plan[0])(*tensors)
        else:
            found = _get_cache_prim(Gradient)(
                self.name, self.text, self.level + 1, outputs, len(tensors), plan[0]
            )(*tensors)  # fmt: skip
        for x, i in zip(kept, plan[1]):  # noqa: B905  # the compiler's zip has no strict
            results = (*results, ops.zeros_like(x)) if i < 0 else (*results, found[i])
        for x in inputs[self.first : self.last]:
            results = (*results[: self.first], ops.zeros_like(x), *results[self.first :])
        return results
