"""What the bridge covers of ATen: for each functional overload, callable or left out and why."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from bridge.infer import data_dependent
from bridge.op.overload import overload
from bridge.op.table import table
from bridge.primitive import in_pytorch


def _row(name: str) -> dict[str, Any]:
    entry = table()[name]
    public = not name.startswith("_")
    if "skipped" in entry:
        return {"status": "skipped", "public": public, "reason": entry["skipped"]}
    op = overload(name)
    graph_reason = in_pytorch.without_kernel(op)
    depends = "always" if data_dependent.always(op) else "in some calls" if data_dependent.sometimes(op) else "never"
    return {
        "status": "callable",
        "public": public,
        "modes": ["pynative"] if graph_reason else ["pynative", "graph"],
        "graph_reason": graph_reason,
        "devices": op.devices,
        "random": op.random,
        "gradient": op.gradient.value,
        "gradient_reason": op.gradient_reason,
        "data_dependent": depends,
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
            "not in graph mode": dict(Counter(row["graph_reason"] for row in rows if row.get("graph_reason"))),
            "gradients": dict(Counter(row["gradient"] for row in rows if row["status"] == "callable")),
            "without gradient": dict(Counter(row["gradient_reason"] for row in rows if row.get("gradient_reason"))),
            "skipped": dict(Counter(row["reason"] for row in rows if row["status"] == "skipped").most_common()),
        }
    return {"overloads": overloads, "totals": totals}


def _description(row: dict[str, Any]) -> str:
    """The modes, what decides shapes, and the gradient of a callable overload, as a text."""
    without = f": {row['gradient_reason']}" if row["gradient_reason"] else ""
    eagerly = f" only: {row['graph_reason']}" if row["graph_reason"] else ""
    shapes = "" if row["data_dependent"] == "never" else f", shapes from the data: {row['data_dependent']}"
    return f"{' '.join(row['modes'])}{eagerly}{shapes}, gradient: {row['gradient']}{without}"


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
        print(
            f"{title}: {totals['overloads']} functional overloads, {totals['callable']} callable "
            f"({totals['in graph mode']} of them in graph mode too)"
        )
        for reason, count in totals["not in graph mode"].items():
            print(f"  {count:5}  not in graph mode: {reason}")
        kinds = totals["gradients"]
        print(
            f"  gradients: {kinds['formula']} by a formula, {kinds['composite']} through their parts; "
            f"{kinds['constant'] + kinds['none']} have none in PyTorch:"
        )
        for reason, count in totals["without gradient"].items():
            print(f"  {count:5}  {reason}")
        print(f"  skipped: {sum(totals['skipped'].values())}")
        for reason, count in totals["skipped"].items():
            print(f"  {count:5}  {reason}")
