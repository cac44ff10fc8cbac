"""No import of bridge runs back up: each package imports what is below it, and no modules import each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .breach import Breach
from .imports import Import, circles, imports, modules

Floors = Sequence[Sequence[str]]

# From the bottom up, in the order of a call. "bridge.*" are the modules of bridge/ itself that no floor names.
FLOORS: Floors = (
    ("bridge._mindspore", "bridge._versions"),
    ("bridge.op",),
    ("bridge.call",),
    ("bridge.infer",),
    ("bridge.primitive",),
    ("bridge.*",),
    ("bridge.kernels",),
    ("bridge.programs",),
    ("bridge.torch",),
    ("bridge.nn", "bridge.optim"),
    ("bridge.einops",),
    ("bridge.port",),
    ("bridge", "bridge.__main__", "bridge.build"),  # the public face; the last is for the setup.py of kernels
)
# Imports that run up all the same: (importer, imported) and the reason.
EXCEPTIONS: Mapping[tuple[str, str], str] = {}


def floor(module: str, floors: Floors) -> int | None:
    """The number of the module's floor; None for a package that has none."""
    for number, names in enumerate(floors):
        if module in names or any(name != "bridge" and module.startswith(f"{name}.") for name in names):
            return number
    is_package_or_in_one = module.count(".") != 1
    return None if is_package_or_in_one else next(i for i, names in enumerate(floors) if "bridge.*" in names)


def breaches(
    root: Path, floors: Floors = FLOORS, exceptions: Mapping[tuple[str, str], str] = EXCEPTIONS
) -> list[Breach]:
    known = modules(root)
    edges = imports(known)
    allowed = [edge for edge in edges if (edge.importer, edge.imported) in exceptions]
    left = [edge for edge in edges if edge not in allowed]
    return [
        *_without_floor(known, floors),
        *(Breach(known[edge.importer], edge.line, what) for edge in left if (what := _upward(edge, floors))),
        *(Breach(known[circle[0]], 1, f"import each other: {', '.join(circle)}") for circle in circles(left)),
        *_stale(root, exceptions, allowed),
    ]


def _without_floor(known: Mapping[str, Path], floors: Floors) -> list[Breach]:
    """Packages are asked for by their __init__.py: a module bridge/x.py is an operator's, bridge/x/ has to say."""
    packages = [name for name, path in known.items() if path.name == "__init__.py" and name.count(".") == 1]
    named = {name for names in floors for name in names}
    return [Breach(known[name], 1, f"{name} has no floor in FLOORS") for name in packages if name not in named]


def _upward(edge: Import, floors: Floors) -> str:
    own, other = floor(edge.importer, floors), floor(edge.imported, floors)
    if own is None or other is None or other <= own:
        return ""
    return f"{edge.importer} imports {edge.imported}, which is above it"


def _stale(root: Path, exceptions: Mapping[tuple[str, str], str], allowed: Sequence[Import]) -> list[Breach]:
    used = {(edge.importer, edge.imported) for edge in allowed}
    return [
        Breach(root, 0, f"{one} no longer imports {other}: drop it from EXCEPTIONS")
        for one, other in exceptions
        if (one, other) not in used
    ]
