"""On GPU, kernels run on MindSpore's stream: in order with its own, and without the host waiting.

Usage:

    pytest tests/test_gpu_stream.py --device GPU
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import ops

import bridge
from bridge import aten

pytestmark = pytest.mark.gpu

SIZE = 2048
ROUNDS = 1000


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


def device_calls(chain: Callable[[ms.Tensor], ms.Tensor]) -> Counter[str]:
    """What a warm chain asks of the CUDA runtime and driver before anybody wants its result."""
    x = ops.relu(ms.Tensor(np.random.default_rng(0).standard_normal((SIZE, SIZE), np.float32)))
    chain(x).asnumpy()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        results = [chain(x) for _ in range(5)]
        time.sleep(0.5)  # MindSpore launches from threads of its own
    results[-1].asnumpy()
    return Counter(event.name for event in profile.events())


def mindspores(x: ms.Tensor) -> ms.Tensor:
    for _ in range(6):
        x = ops.relu(x)
    return x


def mixed(x: ms.Tensor) -> ms.Tensor:
    y = aten.leaky_relu(ops.relu(x), 0.1)
    y = aten.add(ops.relu(y), 2.5)
    y = aten.layer_norm(ops.relu(y), [SIZE])
    y = aten.dropout(ops.relu(y), 0.5, True)
    return ops.relu(aten.clamp(y, -1.0, 1.0))


def test_the_host_never_waits() -> None:
    """The profiler itself waits once, with the same calls for MindSpore's own operators as for the bridge's."""
    alone, together = device_calls(mindspores), device_calls(mixed)
    assert sum(n for name, n in together.items() if "LaunchKernel" in name) >= 50, together.most_common(20)

    def waits(calls: Counter[str]) -> dict[str, int]:
        return {name: n for name, n in calls.items() if "Synchronize" in name}

    assert waits(together) == waits(alone)


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
