"""A Cell with the methods of torch.nn.Module that ported code calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms

from bridge.nn import state_dict


class Module(ms.nn.Cell):
    """A Cell that begins in training mode and has PyTorch's `state_dict`, as a class of ported code derives from it.

    Its method is `construct`. It may have attributes that are layers of `bridge.nn` and Cells of MindSpore.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_train(True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls):
            raise TypeError(f"{cls.__name__}: MindSpore runs and compiles `construct`: name its `forward` so")

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        """A copy of the parameters and buffers as PyTorch's tensors, under the names that PyTorch gives them."""
        return state_dict.state_dict(self)

    def load_state_dict(self, state_dict_: Mapping[str, Any], strict: bool = True) -> Any:  # type: ignore[override]
        """Load what `torch.load` gives, in place. See bridge.nn.load_state_dict."""
        return state_dict.load_state_dict(self, state_dict_, strict)

    def train(self, mode: bool = True) -> Module:
        """Begin training, or evaluation, as `set_train` does."""
        return self.set_train(mode)

    def eval(self) -> Module:
        """End training: `set_train(False)`."""
        return self.set_train(False)
