"""A PyTorch module in a graph on a GPU, which is refused."""

from __future__ import annotations

import mindspore as ms
import pytest
from torch import nn

import bridge

pytestmark = pytest.mark.gpu


def test_a_graph_on_a_gpu_is_refused() -> None:
    net = bridge.cell(nn.Linear(3, 2))

    @ms.jit
    def call(x: ms.Tensor) -> ms.Tensor:
        return net(x)

    with pytest.raises(RuntimeError, match="on a GPU a PyTorch module works in PyNative mode only"):
        call(ms.ops.ones((4, 3), ms.float32))
