"""What the bridge covers of ATen: for each functional overload, callable or left out and why."""
from __future__ import annotations

import json
from collections import Counter
from typing import Any

from bridge.schema import schema, table


def _row(name: str) -> dict[str, Any]:
    entry = table()[name]
    public = not name.startswith("_")
    if "skipped" in entry:
        return {"status": "skipped", "public": public, "reason": entry["skipped"]}
    op = schema(name)
    only_tensors = bool(op.results) and set(op.results) <= {"Tensor", "List[Tensor]"}
    return {
        "status": "callable",
        "public": public,
        "modes": ["pynative", "graph"] if op.shim else ["pynative"],
        "devices": op.devices,
        "random": op.random,
        "gradient": op.gradient,
        "gradient_reason": op.gradient_reason,
        "data_dependent": only_tensors and op.shim is None,
        "returns_scalar": not only_tensors,
    }


def report() -> dict[str, Any]:
    """`overloads`: a row for each functional overload; `totals`: counts of them, of the public ones, of each reason."""
    overloads = {name: _row(name) for name in sorted(table())}
    totals: dict[str, Any] = {}
    for title, rows in (
        ("all", list(overloads.values())),
        ("public", [row for row in overloads.values() if row["public"]]),
    ):
        totals[title] = {
            "overloads": len(rows),
            "callable": sum(row["status"] == "callable" for row in rows),
            "in graph mode": sum("graph" in row.get("modes", ()) for row in rows),
            "gradients": dict(Counter(row["gradient"] for row in rows if row["status"] == "callable")),
            "without gradient": dict(Counter(row["gradient_reason"] for row in rows if row.get("gradient_reason"))),
            "skipped": dict(Counter(row["reason"] for row in rows if row["status"] == "skipped").most_common()),
        }
    return {"overloads": overloads, "totals": totals}


def _description(row: dict[str, Any]) -> str:
    """The modes and the gradient of a callable overload, as a text."""
    without = f": {row['gradient_reason']}" if row["gradient_reason"] else ""
    return f"{' '.join(row['modes'])}, gradient: {row['gradient']}{without}"


def print_report(as_json: bool, verbose: bool) -> None:
    found = report()
    if as_json:
        print(json.dumps(found, indent=1))
        return
    if verbose:
        for name, row in found["overloads"].items():
            print(f"{name:60} {row['status']:9} {row.get('reason') or _description(row)}")
        print()
    for title, totals in found["totals"].items():
        print(f"{title}: {totals['overloads']} functional overloads, {totals['callable']} callable "
              f"({totals['in graph mode']} of them in graph mode too)")
        kinds = totals["gradients"]
        print(f"  gradients: {kinds['formula']} by a formula, {kinds['composite']} through their parts; "
              f"{kinds['constant'] + kinds['none']} have none in PyTorch:")
        for reason, count in totals["without gradient"].items():
            print(f"  {count:5}  {reason}")
        print(f"  skipped: {sum(totals['skipped'].values())}")
        for reason, count in totals["skipped"].items():
            print(f"  {count:5}  {reason}")
