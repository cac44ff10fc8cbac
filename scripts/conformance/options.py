"""What to sweep and how."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """What to sweep and how; plain data, so that worker processes can have it."""

    mode: str = "pynative"
    device: str = "CPU"
    check: str = "forward"
    ops: tuple[str, ...] = ()
    max_calls: int | None = None
    max_samples: int | None = None
    limit: int | None = None
    own_samples: bool = True
    backward_calls: bool = True

    def selects(self, overload: str) -> bool:
        packet = overload.partition(".")[0]
        return not self.ops or any(fnmatch.fnmatch(overload, p) or fnmatch.fnmatch(packet, p) for p in self.ops)
