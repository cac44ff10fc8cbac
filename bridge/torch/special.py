"""torch.special on MindSpore's tensors."""

from __future__ import annotations

from typing import Any

import torch.special

from bridge.torch import names

globals().update(names.functions(torch.special))


def __getattr__(name: str) -> Any:
    return names.missing("torch.special", name, globals())
