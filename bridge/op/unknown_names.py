"""What to say of a name that is no operator of the bridge, or no overload of one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from bridge.op.schema import label
from bridge.op.table import packets, table


def no_operator(name: str) -> str:
    """What to say of `aten.<name>`: why it is left out, which operator does the same, or which names are like it."""
    skipped = [row["skipped"] for full, row in table().items() if full.partition(".")[0] == name]
    if skipped:
        return f"aten.{name} is not callable: {skipped[0]}"
    if name.endswith("_") and name[:-1] in packets():
        return f"aten.{name} would change its argument: use aten.{name[:-1]}, which returns a new tensor"
    alike = [f"aten.{found}" for found in difflib.get_close_matches(name, packets())]
    hint = f": did you mean {' or '.join(alike)}?" if alike else ""
    return f"ATen has no functional operator {name!r}{hint}"


def no_overload(name: str, attribute: str, overloads: Sequence[str]) -> str:
    """What to say of `aten.<name>.<attribute>`.

    Args:
        name: the operator, as in "add", or one of its overloads, as in "add.Tensor".
        attribute: what it does not have.
        overloads: the full names of the operator's overloads.
    """
    full = f"{name}.{attribute}"
    if "skipped" in table().get(full, {}):
        return f"{label(full)} is not callable: {table()[full]['skipped']}"
    if "." in name:
        return f"{label(name)} is an overload and has no {attribute!r}"
    names = ", ".join(overload.partition(".")[2] or "default" for overload in overloads)
    return f"{label(name)} has no overload {attribute!r}. It has {names}; each returns new tensors"
