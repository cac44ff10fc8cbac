"""Programs of unknown sizes on a GPU, where a graph refuses them."""

import mindspore as ms
import pytest
import torch

import bridge

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("graph_mode")]


def test_unknown_sizes_are_refused() -> None:
    cell = bridge.cell(torch.nn.Linear(3, 2))
    cell.set_inputs(ms.Tensor(shape=[None, 3], dtype=ms.float32))
    with pytest.raises(RuntimeError, match="on a GPU a program in a graph needs known shapes"):
        cell(ms.ops.ones((4, 3), ms.float32))
