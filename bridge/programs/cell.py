"""A PyTorch module as a Cell."""
from __future__ import annotations

from typing import Any

import mindspore as ms
import torch

from bridge import dtypes
from bridge.programs.program import Program


class ModuleCell(ms.nn.Cell):
    """A Cell that runs a PyTorch module. See `cell`.

    Attributes:
        module: the PyTorch module, whose parameters and buffers share their memory with this Cell's Parameters.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.program = Program(module)
        self.set_train(module.training)
        shared: dict[torch.Tensor, ms.Parameter] = {}
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if tensor not in shared:
                shape = tuple(tensor.shape)
                empty = ms.Tensor(shape=shape, dtype=dtypes.to_mindspore(tensor.dtype))
                shared[tensor] = ms.Parameter(empty, name=name, requires_grad=tensor.requires_grad)
                self.program.share(shared[tensor], tensor)
            self.insert_param_to_cell(name, shared[tensor], check_name_contain_dot=False)
        self.program.use_in_graphs(list(shared.values()))

    @property
    def module(self) -> torch.nn.Module:
        return self.program.module

    def construct(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.program(*args, **kwargs)


def cell(module: torch.nn.Module) -> Any:
    """A Cell that computes what the PyTorch module computes, and trains in MindSpore."""
    return ModuleCell(module)
