"""ATen's operators by name: `aten.leaky_relu(x, 0.01)`, `aten.add.Tensor(x, y, alpha=2)`.

aten.pyi beside this file, generated, holds every signature.
"""

from __future__ import annotations

from bridge.op.table import packets, table
from bridge.operator import Operator

# MindSpore's compiler looks into a module's dictionary, so the operators stand there from the start.
globals().update({name: Operator(name, tuple(overloads)) for name, overloads in packets().items()})


def __getattr__(name: str) -> Operator:
    skipped = [row["skipped"] for full, row in table().items() if full.partition(".")[0] == name]
    if skipped:
        raise AttributeError(f"aten.{name} is not callable: {skipped[0]}")
    raise AttributeError(f"ATen has no functional operator {name!r}")


def __dir__() -> list[str]:
    return sorted(packets())
