"""A kernel from sources, as users call it."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from bridge.kernels.custom import Custom
from bridge.kernels.objects import suffix
from bridge.op import devices
from bridge.op.overload import overload
from bridge.op.table import Variant
from bridge.operator import Operator


class KernelOperator(Operator):
    """A kernel from sources, as a MindSpore operator for both modes."""

    def __init__(self, op: Custom) -> None:
        super().__init__(op.name, (op.name,))
        self._op = op

    def __reduce__(self) -> Any:
        return _declared_here, (self.name,)

    @property
    def gradient_kernels(self) -> dict[str, KernelOperator]:
        """The functions of the sources that the gradient line calls, as operators of their own."""
        return {name: KernelOperator(op) for name, op in self._op.relatives.items()}

    def build(self) -> pathlib.Path:
        """Compile for MindSpore's device now, rather than at the first call; returns the library."""
        return self._op.build(devices.place(self._op))

    def on_torch(self, *args: Any, **kwargs: Any) -> Any:
        """Run the same kernel on PyTorch's tensors, without MindSpore and without a gradient: to compare with.

        Raises TypeError for an AOT kernel.
        """
        return self._op.on_torch(*args, **kwargs)

    def write_shim(self, folder: str | os.PathLike[str], device: Variant = "CPU") -> pathlib.Path:
        """Write the generated C++ into a folder, as a start for a shim by hand; returns the file.

        Args:
            folder: where to; it is made if it is not there.
            device: "CPU" or "CUDA".
        """
        unit = self._op.shims(device)
        name = unit.source.stem if unit.source else self._op.library.variant(device).name
        path = pathlib.Path(folder) / f"{name}_shim{suffix(unit, device == 'CUDA')}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unit.shims)
        return path


def _declared_here(name: str) -> KernelOperator:
    """The operator of that name, where a pickle asks for it."""
    op = overload(name)
    assert isinstance(op, Custom)
    return KernelOperator(op)
