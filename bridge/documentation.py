"""The docstring of an operator: its overloads, and of each where and how it runs and has a gradient."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import torch

from bridge.infer import data_dependent
from bridge.op.overload import GradientKind, Overload
from bridge.op.schema import label
from bridge.primitive.in_pytorch import without_kernel

# Where PyTorch's pages are.
PAGES = "https://docs.pytorch.org/docs/stable/generated"
_PLACES = {
    torch: "torch",
    torch.nn.functional: "torch.nn.functional",
    torch.linalg: "torch.linalg",
    torch.fft: "torch.fft",
    torch.special: "torch.special",
}
_GRADIENTS = {
    GradientKind.FORMULA: "gradient",
    GradientKind.COMPOSITE: "gradient through its parts",
    GradientKind.CONSTANT: "its results are constants to a gradient",
}


def documented(name: str, overloads: Sequence[Overload]) -> str:
    """The docstring of an operator."""
    parts = [f"{label(name)}, an operator of PyTorch's, on MindSpore's tensors.", ""]
    for op in overloads:
        parts += [op.schema.text, textwrap.indent(_facts(op), "    ")]
    page = _page(overloads[0])
    return "\n".join([*parts, *([f"\nPyTorch's page: {page}"] if page else []), _RAISES])


_RAISES = """
Raises:
    TypeError: the arguments fit no overload.
    ValueError, IndexError, RuntimeError: PyTorch refuses the shapes, dtypes or values, in its own words."""


def _facts(op: Overload) -> str:
    """One line."""
    eagerly = without_kernel(op)
    modes = f"PyNative mode only ({eagerly})" if eagerly else "PyNative and graph mode"
    gradient = _GRADIENTS.get(op.gradient) or "no gradient" + f" ({op.gradient_reason})" * bool(op.gradient_reason)
    found = [modes, " and ".join(op.devices), gradient]
    if op.random:
        found.append("draws from PyTorch's generator, which bridge.manual_seed seeds")
    if data_dependent.always(op):
        found.append("shapes follow from the data")
    return "; ".join(found)


def _page(op: Overload) -> str:
    """The address of the public function's page, if there is one."""
    packet = op.schema.packet
    for namespace, place in _PLACES.items():
        for name in (packet, packet.removeprefix(f"{place.rpartition('.')[2]}_")):
            if op.schema.is_aten and not name.startswith("_") and callable(getattr(namespace, name, None)):
                return f"{PAGES}/{place}.{name}.html"
    return ""
