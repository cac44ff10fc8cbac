"""The MindSpore primitive for an ATen overload with given non-tensor arguments."""
from __future__ import annotations

import ctypes
import pathlib
from typing import Any

from mindspore import ops

from bridge import dtypes
from bridge.infer import infer
from bridge.schema import schema

LIBRARIES = pathlib.Path(__file__).parent / "lib"
_MAX_INFERRED = 4096

# MindSpore's kernels close their library when they go; held here, it stays loaded for the next ones.
_cpu_library = ctypes.CDLL(str(LIBRARIES / "libaten_cpu.so"))


def _unused(*_: Any) -> None:
    """Custom wants inference functions; ATen.__infer__ replaces both."""


class ATen(ops.Custom):
    """An ATen overload as a MindSpore primitive: tensors in, tensors out.

    Args:
        name: the overload, as in "add.Tensor".
        text: the non-tensor arguments (bridge/encoding.py). MindSpore tells primitives apart by their attributes, so
            everything that a result depends on besides the tensors stands in these two.
    """

    def __init__(self, name: str, text: str) -> None:
        op = schema(name)
        super().__init__(f"{LIBRARIES / 'libaten_cpu.so'}:aten_{op.shim}", _unused, _unused, "aot")
        self.init_attrs = {"name": name, "text": text}
        self.add_prim_attr("aten_op", name)
        self.add_prim_attr("aten_args", text)
        if op.random:
            self.add_prim_attr("side_effect_hidden", True)  # two draws are two draws, even with equal arguments
        self.single = op.results == ["Tensor"]
        self._inferred: dict[Any, dict[str, Any]] = {}

    def __infer__(self, *inputs: dict[str, Any]) -> dict[str, Any]:
        key = tuple((*x["shape"], x["dtype"].element_type()) for x in inputs)
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
