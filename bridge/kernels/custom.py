"""A kernel from sources, as the bridge knows it: what runs, what infers, what differentiates."""

from __future__ import annotations

import pathlib
from typing import Any

import torch

from bridge.call.arguments import Bound, resolve
from bridge.call.in_program import marked
from bridge.call.torch_call import renamed
from bridge.infer.meta import infer
from bridge.kernels import loading, native, shims
from bridge.kernels.bprops import NoGradient, PythonGradient
from bridge.kernels.declaration import Declaration
from bridge.kernels.errors import KernelError
from bridge.kernels.gradient_line import Line, aten_names
from bridge.kernels.inference import Results, inference
from bridge.kernels.line_gradient import LineGradient
from bridge.kernels.objects import Unit
from bridge.kernels.shims import Function
from bridge.kernels.sources import KernelLibrary
from bridge.op.encoding import Text
from bridge.op.overload import GradientKind, Overload
from bridge.op.schema import Schema
from bridge.op.table import Device, Variant


class Custom(Overload):
    """A kernel from sources.

    Args:
        name: its full name.
        declaration: its schema.
        library: what it is compiled into.
        function: it, there.
        results: see bridge.kernels.extension.
        gradient: a parsed line, a Python function, or None.
        relatives: the kernels that the line calls, by the names that it has for them.
    """

    dispatched = False
    eager_because = "it has no results=, so its shapes follow from its data"
    not_in_programs = "it is a kernel from sources, which PyTorch does not know: register it with torch.library"

    def __init__(
        self,
        name: str,
        declaration: Declaration,
        library: KernelLibrary,
        function: Function,
        results: Results,
        gradient: Line | Any,
        relatives: dict[str, Custom],
    ) -> None:
        meta = inference(declaration, results)
        super().__init__(
            Schema(name, declaration.text, declaration.arguments, tuple(declaration.result_types)),
            meta or self._run_on_torch,
            library.devices,
            GradientKind.NONE if gradient is None else GradientKind.FORMULA,
        )
        self._tells_shapes = meta is not None
        self.declaration = declaration
        self.library = library
        self._function = function
        self._gradient = gradient
        self.relatives = relatives
        self._functions = [function, *(relative._function for relative in relatives.values())]

    def build(self, device: Device) -> pathlib.Path:
        """Compile and load for one of MindSpore's devices now; returns the library."""
        return self.library.path(device, self._functions)

    def shims(self, device: Variant) -> Unit:
        """The C++ around the function, and around those of its gradient that are in the same source, for "CPU" or
        "CUDA"."""
        return self.library.variant(device).shim_units(self._functions)[0]

    @property
    def has_kernel(self) -> bool:
        return self._tells_shapes

    def function(self, device: Device) -> str:
        return f"{self.library.path(device, self._functions)}:{shims.symbol(self._function)}"

    def attributes(self, text: Text) -> dict[str, Any]:
        if self._function.form != "aot":
            return {}
        pairs = zip(self.declaration.arguments, text.values, strict=True)
        found = {a.name: value for a, value in pairs if a.base != "Tensor" and value is not None}
        for name, value in found.items():
            if isinstance(value, complex):
                raise TypeError(f"{self.name}: '{name}' is complex, which MindSpore's attributes of a kernel cannot be")
        return found

    @property
    def reads_attributes(self) -> bool:
        return self._function.form == "aot"

    @property
    def takes_variables(self) -> bool:
        return True  # `backward_schema` declares the functions that a line calls

    def bprop(self, text: Text, device: Device) -> Any:
        if self._gradient is None:
            return NoGradient(self.name, text, self.declaration)
        if isinstance(self._gradient, Line):
            return LineGradient(self.name, text, device, self.declaration, self._gradient, self._called_names)
        return PythonGradient(self.name, text, self.declaration, self._gradient)

    def _called_names(self, function: str) -> list[str]:
        relative = self.relatives.get(function)
        return [relative.name] if relative else aten_names(function)

    def on_torch(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel on PyTorch's tensors: without MindSpore, and without a gradient."""
        if self._function.form == "aot":
            raise TypeError(f"{self.name} is an AOT kernel, which runs in MindSpore only")
        try:
            return self._run_on_torch(*args, **kwargs)
        except RuntimeError as error:
            raise error if isinstance(error, KernelError) else renamed(error, self.name) from None

    def _run_on_torch(self, *args: Any, **kwargs: Any) -> Any:
        bound = resolve(
            self.schema.packet, [self], [marked(a) for a in args], {k: marked(v) for k, v in kwargs.items()}
        )
        tensors = [mark.tensor for mark in bound.tensors]
        on = tensors[0].device if tensors else torch.device("cpu")
        device: Device = "GPU" if on.type == "cuda" else "CPU"
        written = self._written_on_torch(bound, tensors, device)
        path = self.library.path(device, self._functions)
        entry = loading.load(path, self.name)[f"{shims.symbol(self._function)}Run"]
        found = native.run(entry, bound.text, tensors, written, returns=bool(self.declaration.returns))
        return found[0] if self.schema.results == ("Tensor",) else tuple(found)

    def _written_on_torch(self, bound: Bound, tensors: list[torch.Tensor], device: Device) -> list[torch.Tensor]:
        """Memory for the results that the function writes to."""
        declaration = self.declaration
        written = declaration.outputs[: declaration.written]
        if all(output.kind == "in_out" for output in written):
            places = dict(zip([a.name for a in declaration.arguments], bound.text.values, strict=True))
            return [torch.empty_like(tensors[places[output.name].position].contiguous()) for output in written]
        specs = infer(self.name, bound.text, device, tuple((tuple(t.shape), t.dtype) for t in tensors))
        return [torch.empty(shape, dtype=dtype, device=tensors[0].device) for shape, dtype in specs[: len(written)]]
