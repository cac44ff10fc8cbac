"""torch.fft on MindSpore's tensors."""

from __future__ import annotations

from typing import Any

import torch.fft

from bridge.torch import names

globals().update(names.functions(torch.fft))


def __getattr__(name: str) -> Any:
    return names.missing("torch.fft", name, globals())
