"""The MindSpore primitive for an ATen overload with given non-tensor arguments."""
from __future__ import annotations

import ctypes
import pathlib
from typing import Any

from mindspore import ops

from bridge import dtypes, graph
from bridge.infer import infer
from bridge.schema import schema

LIBRARIES = pathlib.Path(__file__).parent / "lib"
_MAX_INFERRED = 4096

# MindSpore's kernels close their library when they go; held here, they stay loaded for the next ones.
_shared = ctypes.CDLL(str(LIBRARIES / "libms_ext.so"))
_kernels = ctypes.CDLL(str(LIBRARIES / "libaten_cpu.so"))
graph.install(_shared)


def _unused(*_: Any) -> None:
    """Custom wants inference functions; ATen.__infer__ replaces both."""


class ATen(ops.Custom):
    """An ATen overload as a MindSpore primitive: tensors in, tensors out.

    Args:
        name: the overload, as in "add.Tensor".
        text: the non-tensor arguments (bridge/encoding.py). MindSpore tells primitives apart by their attributes, so
            everything that a result depends on besides the tensors stands in these two.
        input_dtypes: in graph mode, the names of the inputs' dtypes; inference is then done in C++ (bridge/graph.py).
            PyNative mode infers by `__infer__`, which costs less.
    """

    def __init__(self, name: str, text: str, input_dtypes: str | None = None) -> None:
        op = schema(name)
        infer_in_python = _unused if input_dtypes is None else None
        super().__init__(f"{LIBRARIES / 'libaten_cpu.so'}:aten_{op.shim}", infer_in_python, infer_in_python, "aot")
        self.init_attrs = {"name": name, "text": text, "input_dtypes": input_dtypes}
        self.single = op.results == ["Tensor"]
        self.add_prim_attr("aten_op", name)
        self.add_prim_attr("aten_args", text)
        if input_dtypes is not None:
            self.add_prim_attr("aten_dtypes", input_dtypes)
            self.add_prim_attr("reg_op_name", name)
            self.add_prim_attr("multi_output", not self.single)
        if op.random:
            self.add_prim_attr("side_effect_hidden", True)  # two draws are two draws, even with equal arguments
        self._inferred: dict[Any, dict[str, Any]] = {}

    def __infer__(self, *inputs: dict[str, Any]) -> dict[str, Any]:
        key = tuple([(*x["shape"], x["dtype"].element_type()) for x in inputs])
        result = self._inferred.get(key)
        if result is None:
            if len(self._inferred) >= _MAX_INFERRED:
                self._inferred.clear()
            result = self._inferred[key] = self._infer(key)
        return result

    def _infer(self, key: tuple[Any, ...]) -> dict[str, Any]:
        specs = infer(self.aten_op, self.aten_args, tuple((k[:-1], dtypes.to_torch(k[-1])) for k in key))
        shapes = tuple(shape for shape, _ in specs)
        types = tuple(dtypes.to_mindspore(dtype) for _, dtype in specs)
        if self.single:
            return {"shape": shapes[0], "dtype": types[0], "value": None}
        return {"shape": shapes, "dtype": types, "value": None}
