"""torch.nn.functional on MindSpore's tensors."""

from __future__ import annotations

from typing import Any

import torch.nn.functional

from bridge.torch import names

globals().update(names.elsewhere(torch.nn.functional))
globals().update(names.functions(torch.nn.functional))


def __getattr__(name: str) -> Any:
    return names.missing("torch.nn.functional", name, globals())
