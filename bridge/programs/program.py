"""The call of a module: in PyNative mode its own Python runs under PyTorch's autograd, on MindSpore's memory."""
from __future__ import annotations

from typing import Any

import mindspore as ms
import torch

from bridge import direct
from bridge.programs.graph import GraphModule
from bridge.programs.tree import Arguments, Results


class Program:
    """A module as a function of MindSpore's tensors.

    ms_ext/module.cpp makes the tensors PyTorch's and back, and records the call for MindSpore's gradients.
    """

    __ms_class__ = True  # as in bridge/operator.py
    __parse_method__ = "_call_in_graph"

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self._calls = direct.module(type(module).__name__)

    def share(self, own: ms.Parameter, torch_tensor: torch.Tensor) -> None:
        """Have MindSpore's parameter and PyTorch's parameter or buffer use the same memory from now on."""
        self._calls.share(own, torch_tensor)

    def use_in_graphs(self, weights: list[ms.Parameter]) -> None:
        """Have graphs take these Parameters: one for each of the module's parameters and buffers, tied ones once."""
        self.weights = ms.ParameterTuple(weights)
        self.graph = GraphModule(self.module, [weight.name for weight in weights], weights)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arguments = Arguments(args, kwargs)
        results: Results | None = None

        def call(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            nonlocal results
            args, kwargs = arguments.with_tensors(tensors)
            results = Results(self.module(*args, **kwargs))
            return results.tensors

        tensors = self._calls(call, arguments.tensors)
        assert results is not None
        return results.with_tensors(tensors)

    def _call_in_graph(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.graph.call(self.weights, args, kwargs)
