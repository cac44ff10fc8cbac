"""ATen's operators by name: `aten.leaky_relu(x, 0.01)`, `aten.add.Tensor(x, y, alpha=2)`.

aten.pyi beside this file, generated, holds every signature.
"""

from __future__ import annotations

from bridge.op.table import packets
from bridge.op.unknown_names import no_operator
from bridge.operator import Operator

# MindSpore's compiler looks into a module's dictionary, so the operators stand there from the start.
globals().update({name: Operator(name, tuple(overloads)) for name, overloads in packets().items()})


def __getattr__(name: str) -> Operator:
    raise AttributeError(no_operator(name))


def __dir__() -> list[str]:
    return sorted(packets())
