"""The tests of programs in graph mode on a GPU, where MindSpore's stream and memory are CUDA's."""

import mindspore as ms
import pytest
import torch

import bridge
from test_programs_graph import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs", "graph_mode")]


def test_attention_that_drops_is_refused() -> None:
    cell = bridge.cell(torch.nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True))

    def call(x):
        return cell(x)

    with pytest.raises(RuntimeError, match="on a GPU a graph takes no attention with dropout"):
        ms.jit(call)(ms.ops.ones((2, 5, 16), ms.float32))
