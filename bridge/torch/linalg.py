"""torch.linalg on MindSpore's tensors."""

from __future__ import annotations

from typing import Any

import torch.linalg

from bridge.torch import names

globals().update(names.functions(torch.linalg))


def __getattr__(name: str) -> Any:
    return names.missing("torch.linalg", name, globals())
