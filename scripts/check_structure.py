"""Checks the rules of the tree: no import of bridge runs back up, MindSpore's private names stand in two places.

Usage:

    python scripts/check_structure.py   # prints what is against them; tests/test_structure.py runs it, too
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from structure import floors, private_names
from structure.breach import Breach

ROOT = Path(__file__).resolve().parent.parent


def mindspore_include() -> Path:
    """The headers of the installed MindSpore, which is not imported for it."""
    spec = importlib.util.find_spec("mindspore")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("MindSpore is not installed")
    return Path(spec.origin).parent / "include"


def breaches(root: Path = ROOT) -> list[Breach]:
    return [*floors.breaches(root), *private_names.breaches(root, mindspore_include())]


def main() -> int:
    found = breaches()
    print(*found, f"{len(found)} breaches", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
