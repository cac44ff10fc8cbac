"""ATen's operators by name: `aten.leaky_relu(x, 0.01)`, `aten.add.Tensor(x, y, alpha=2)`.

An operator is made when it is first asked for. aten.pyi beside this file, generated, holds every signature.
"""
from __future__ import annotations

from bridge.operator import Operator, operator
from bridge.schema import packets, table


def __getattr__(name: str) -> Operator:
    if name in packets():
        found = operator(name)
        globals()[name] = found
        return found
    skipped = [row["skipped"] for full, row in table().items() if full.partition(".")[0] == name]
    if skipped:
        raise AttributeError(f"aten.{name} is not callable: {skipped[0]}")
    raise AttributeError(f"ATen has no functional operator {name!r}")


def __dir__() -> list[str]:
    return sorted(packets())
