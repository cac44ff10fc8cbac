"""bridge/_versions.py without the package around it, which can be imported only when it is built."""

from __future__ import annotations

import pathlib
import runpy
from typing import Any

_NAMES: dict[str, Any] = runpy.run_path(str(pathlib.Path(__file__).parent.parent / "bridge" / "_versions.py"))

BUILT_WITH: str = _NAMES["BUILT_WITH"]
REQUIREMENTS: list[str] = _NAMES["requirements"]()
PYTHON: str = _NAMES["specifier"](_NAMES["PYTHON"])
