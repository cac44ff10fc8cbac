"""What is found against a rule."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Breach(NamedTuple):
    """A place, and what is wrong there."""

    path: Path
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"
