"""The call of a module: in PyNative mode its own Python runs under PyTorch's autograd, on MindSpore's memory."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge._start import start_on
from bridge.op import devices
from bridge.primitive.kernel import direct, one_at_a_time
from bridge.programs import tree
from bridge.programs.graph import GraphModule
from bridge.programs.state import State, move_unshared


class Program(_mindspore.CompiledAsMethod):
    """A module as a function of MindSpore's tensors.

    ms_ext/mindspore/python/module.cpp makes the tensors PyTorch's and back, and records the call for
    MindSpore's gradients.

    Attributes:
        module: the PyTorch module.
        state: its parameters and buffers.
        precision: the dtype that `Cell.to_float` or `mindspore.amp` gave the Cell, for torch.autocast.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.precision: torch.dtype | None = None
        start_on(devices.target())
        self._calls = direct.module(type(module).__name__)
        self.state = State(module, self._calls)
        self.weights = ms.ParameterTuple(list(self.state.parameters.values()))
        self.graph = GraphModule(module, self.state.parameters, self._autocast)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = tree.arguments(args, kwargs)
        found: Any = None

        def run(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            nonlocal found
            args, kwargs = given.with_tensors(tensors)
            with self._autocast():
                found = tree.results(self.module(*args, **kwargs))
            self.state.follow_buffers()
            return found.tensors

        with one_at_a_time:
            try:
                tensors = self._calls(run, given.tensors, self._gpu)
            except BaseException:
                _mindspore.stop_recording()
                raise
        assert found is not None
        return found.with_tensors(tensors)

    def _autocast(self) -> Any:
        """What runs the module in the dtype that MindSpore asks for."""
        if self.precision is not None:
            device = "cpu" if self._gpu < 0 else "cuda"
            return torch.autocast(device, self.precision, enabled=self.precision != torch.float32)
        if direct.has_mixed_precision():
            raise RuntimeError(
                f"{type(self.module).__name__}: the lists of mindspore.amp do not reach into a PyTorch module: give "
                "its Cell a dtype of its own, by to_float"
            )
        return contextlib.nullcontext()

    @functools.cached_property
    def _gpu(self) -> int:
        """The GPU that MindSpore's tensors are on; -1 if it has none."""
        if devices.target() != "GPU":
            return -1
        if not devices.has_cuda_set():
            raise RuntimeError("bridge.cell on a GPU needs a bridge that was built with the CUDA operators")
        move_unshared(self.module, devices.torch_name("GPU"))
        return int(ms.get_context("device_id"))

    def _call_in_graph(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.graph.call(self.weights, args, kwargs)
