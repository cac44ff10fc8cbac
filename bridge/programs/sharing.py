"""Parameters of MindSpore's that PyTorch works on outside of a module: an optimizer's, or one that is given values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.op import devices
from bridge.primitive import direct
from bridge.primitive.kernel import one_at_a_time
from bridge.programs import tree
from bridge.programs.set_data import follow_set_data
from bridge.programs.state import State


class Sharing:
    """MindSpore's Parameters and PyTorch's, on the same memory.

    Args:
        name: of whom this is, for errors.
        parameters: MindSpore's.
        tensors: PyTorch's for them, as `tensor_of` in state.py gives them.
    """

    def __init__(self, name: str, parameters: Sequence[ms.Parameter], tensors: Sequence[torch.Tensor]) -> None:
        self.parameters = ms.ParameterTuple(parameters)
        self.tensors = list(tensors)
        self._calls = direct.module(name, tree.results_with_data, is_torch_code=False)
        self.state = State({str(i): tensor for i, tensor in enumerate(tensors)}, [], self._calls)
        follow_set_data(self.state)

    def run(self, function: Callable[[list[torch.Tensor]], Any], tensors: Sequence[ms.Tensor]) -> None:
        """Call a function with PyTorch's views of MindSpore's tensors, once the parameters are what MindSpore has."""

        def called(*views: torch.Tensor) -> tuple[()]:
            function([*views])
            return ()

        self.state.refuse_former()
        with _mindspore.one_graph_at_a_time, one_at_a_time:
            self._calls(called, tensors, self._gpu, False)

    @functools.cached_property
    def _gpu(self) -> int:
        return devices.gpu()
