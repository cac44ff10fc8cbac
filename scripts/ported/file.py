"""A file of a public package, and the edits that port it."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .torchvisions import define_torchvisions_operators

BUILD = Path(__file__).resolve().parents[2] / "build" / "ported"

# The edits that every file gets: patterns of whole lines, and what becomes of them.
IMPORTS = (
    (r"^import torch$", "from bridge import torch"),
    (r"^(import torch\.nn as nn|from torch import nn)$", "from bridge import nn"),
    (r"^import torch\.nn\.functional as F$", "from bridge.nn import functional as F"),
    (r"^from torch import nn, (.*)$", r"from bridge import nn\nfrom bridge.torch import \1"),
    (r"^from torch import ", "from bridge.torch import "),
    (r"^from torch\.nn import ", "from bridge.nn import "),
    (r"^import torch\.nn\.init as init$", "from bridge.nn import init"),
    (r"^from torch\.optim import ", "from bridge.optim import "),
    (r"^from einops(?=[. ])", "from bridge.einops"),
)
NOT_WHEN_FUSED = ("method", "operator", "graph")
CONSTRUCT = r"\bdef forward\("


@dataclass
class File:
    """A file to port.

    Args:
        name: a short one.
        source: the module.
        edits: by their kind, texts and what becomes of each wherever it stands.
        make: makes the network from the module, PyTorch's or the ported one.
        inputs: the arrays that the network is called with.
        differs: by the mode, why bits differ there.
        not_for: by the mode, why the edits do not port the file to it.
        needs: files that this one imports, which an edit imports under their names with "_ported".
    """

    name: str
    source: str
    make: Callable[[Any], Any]
    inputs: tuple[np.ndarray, ...]
    edits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    differs: Mapping[str, str] = field(default_factory=dict)
    not_for: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[File, ...] = ()

    def original(self) -> ModuleType:
        """The file as its package has it.

        Raises:
            ModuleNotFoundError: the package is not installed.
        """
        define_torchvisions_operators()
        return importlib.import_module(self.source)

    def text(self) -> str:
        return Path(self.original().__file__ or "").read_text()

    def ported_text(self, is_fused: bool = False) -> tuple[str, Counter[str]]:
        """The text after all edits, and how many of each kind there were.

        Args:
            is_fused: whether bridge.fuse runs the network: the methods and operators of tensors are PyTorch's there.

        Raises:
            ValueError: a text to edit is not in the file.
        """
        text, counts = self.text(), Counter[str]()
        for pattern, becomes in IMPORTS:
            text, count = re.subn(pattern, becomes, text, flags=re.MULTILINE)
            counts["import"] += count
        text, counts["construct"] = re.subn(CONSTRUCT, "def construct(", text)
        for kind, edits in self.edits.items():
            if is_fused and kind in NOT_WHEN_FUSED:
                continue
            for old, new in edits.items():
                if old not in text:
                    raise ValueError(f"{self.source} of the installed release has no {old!r}")
                counts[kind] += text.count(old)
                text = text.replace(old, new)
        return text, counts

    def ported(self, is_fused: bool = False) -> ModuleType:
        """The ported file, imported. Its relative imports are those of the package."""
        for file in self.needs:
            file.ported(is_fused)
        BUILD.mkdir(parents=True, exist_ok=True)
        path = BUILD / f"{self.name}.py"
        path.write_text(self.ported_text(is_fused)[0])
        spec = importlib.util.spec_from_file_location(f"{self.source}_ported", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module


def image(size: int, channels: int = 3, batch: int = 3) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((batch, channels, size, size)).astype(np.float32)


def words(length: int, count: int, batch: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, count, (batch, length))
