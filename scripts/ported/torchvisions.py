"""torchvision beside a PyTorch that it was not built for."""

from __future__ import annotations

import functools
import importlib.util
import pathlib
import re
from typing import Any

import torch

KEPT: list[Any] = []  # a library of operators lasts as long as its object


@functools.cache
def define_torchvisions_operators() -> None:
    """torchvision cannot be imported without its kernels, which its CUDA wheels do not load beside a CPU build of
    PyTorch. No network here calls them."""
    package = importlib.util.find_spec("torchvision")
    if package is None or package.origin is None or torch.version.cuda is not None:
        return
    source = pathlib.Path(package.origin).with_name("_meta_registrations.py").read_text()
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in sorted(set(re.findall(r"""["'](?:torchvision::)?(_?[a-z0-9_]+)["']\)\n\s*def """, source))):
        library.define(f"{name}(Tensor x) -> Tensor")
    KEPT.append(library)
