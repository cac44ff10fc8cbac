"""Says what stands for a module of PyTorch's that a file imports from here, as `bridge.torch.utils.data`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from bridge.torch.reasons import reason

_STAND_FOR = {"bridge.torch": "torch", "bridge.nn": "torch.nn", "bridge.optim": "torch.optim"}


class Absent:
    """A finder that Python asks last, for modules that nobody has."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Say where it is, if PyTorch has a module of this name.

        Raises:
            ModuleNotFoundError: PyTorch has it, in place of Python's that does not say more.
        """
        package, _, last = name.rpartition(".")
        above: Any = sys.modules.get(package)
        theirs = next(
            (theirs + package[len(own) :] for own, theirs in _STAND_FOR.items() if f"{package}.".startswith(f"{own}.")),
            None,
        )
        if above is None or theirs is None or not _is_module(f"{theirs}.{last}"):
            return None
        sentence = reason(f"{theirs}.{last}") or f"import from {package} what it has"
        raise ModuleNotFoundError(f"{package} has no module {last}: {sentence}", name=name)


def _is_module(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


def explain_absent_modules() -> None:
    """Have Python ask."""
    if Absent not in sys.meta_path:
        sys.meta_path.append(Absent)
