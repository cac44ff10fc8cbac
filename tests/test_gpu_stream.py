"""On GPU, kernels run on MindSpore's stream: in order with its own, and without the host waiting.

    pytest tests/test_gpu_stream.py --device GPU
"""

from __future__ import annotations

from collections import Counter

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import ops

import bridge
from bridge import aten

SIZE = 2048
ROUNDS = 1000
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
         "cuCtxSynchronize", "cuEventSynchronize")  # fmt: skip


def produce(x: ms.Tensor, w: ms.Tensor) -> ms.Tensor:
    """Some milliseconds of MindSpore's own kernels."""
    for _ in range(4):
        x = ops.matmul(x, w)
    return x


def test_a_bridge_operator_waits_for_the_producer_and_the_consumer_for_it() -> None:
    w = ms.Tensor(np.eye(SIZE, dtype=np.float32) * 0.5)
    first = ms.Tensor(np.random.default_rng(0).standard_normal((SIZE, SIZE), np.float32))
    # Multiplying by 0.5 and summing is exact enough to be equal: each result depends on its round alone.
    wanted = [(aten.leaky_relu(produce(first + float(i), w), 0.25) * 2.0).asnumpy()[::97, ::89] for i in range(4)]
    for i in range(ROUNDS):
        made = aten.leaky_relu(produce(first + float(i % 4), w), 0.25) * 2.0
        if i % 10 == 0:  # the others only keep the stream busy
            np.testing.assert_array_equal(made.asnumpy()[::97, ::89], wanted[i % 4])


def test_the_host_never_waits() -> None:
    x = ms.Tensor(np.random.default_rng(0).standard_normal((SIZE, SIZE), np.float32))
    w = ms.Tensor(np.eye(SIZE, dtype=np.float32))
    weight = ms.Tensor(np.ones(SIZE, np.float32))

    def chain() -> ms.Tensor:
        y = produce(x, w)
        y = aten.leaky_relu(y, 0.1)
        y = aten.add(y, 2.5)
        y = aten.layer_norm(y, [SIZE], weight, weight)
        y = aten.dropout(y, 0.5, True)
        return ops.relu(aten.clamp(y, -1.0, 1.0))

    bridge.manual_seed(0)
    chain().asnumpy()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    ) as profile:
        results = [chain() for _ in range(5)]
    results[-1].asnumpy()
    calls = Counter(event.name for event in profile.events())
    assert any("LaunchKernel" in name for name in calls), calls.most_common(20)
    assert {name: n for name, n in calls.items() if name in WAITS} == {}


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_gradients_of_a_draw_are_those_of_that_draw(mode: int) -> None:
    ms.set_context(mode=mode)
    x = ms.Tensor(np.ones((64, 64), np.float32))
    bridge.manual_seed(5)
    value, gradient = ms.value_and_grad(dropped)(x)
    np.testing.assert_array_equal(gradient.asnumpy(), value.asnumpy())
    torch.manual_seed(5)
    expected = torch.ops.aten.dropout(torch.ones(64, 64, device="cuda"), 0.5, True)
    np.testing.assert_array_equal(value.asnumpy(), expected.cpu().numpy())


def dropped(x: ms.Tensor) -> ms.Tensor:
    return aten.dropout(x, 0.5, True)
