"""What kernels of one's own cost: the build, loading what is built, and a call, in one run.

Usage:

    python scripts/bench_kernels.py
"""

from __future__ import annotations

import functools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import torch

from bridge import aten, kernels

EXAMPLES = pathlib.Path(__file__).parent / "examples"
CHAIN = 20
REPEATS = 30

# Run in a process of its own, so that nothing is loaded yet.
LOAD = """
import time

from bridge import kernels

start = time.perf_counter()
{declaration}
print((time.perf_counter() - start) * 1e3)
"""
DECLARATIONS = {
    "custom_add (AOT)": f"""kernels.aot({str(EXAMPLES / "custom_add" / "custom_add.cpp")!r},
    "CustomAdd(Tensor a, Tensor b) -> Tensor", results="a", gradient="a: grad, b: grad").build()""",
    "sigmoid (extension)": f"""kernels.extension({str(EXAMPLES / "sigmoid" / "sigmoid.cpp")!r},
    "sigmoid(Tensor x) -> Tensor", results="x", gradient="x: sigmoid_backward(grad, result)").build()""",
    "nms (registered)": f"""kernels.registered("detection::nms", {str(EXAMPLES / "nms" / "nms.cpp")!r})""",
}


def milliseconds_in_a_new_process(declaration: str) -> float:
    """How long the declaration takes."""
    command = [sys.executable, "-c", LOAD.format(declaration=declaration)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def loading() -> None:
    print("milliseconds to declare and load, in a new process")
    print(f"{'':24}{'first use':>12}{'later':>8}")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["BRIDGE_CACHE"] = cache
        for name, declaration in DECLARATIONS.items():
            first = milliseconds_in_a_new_process(declaration)
            later = statistics.median(milliseconds_in_a_new_process(declaration) for _ in range(3))
            print(f"{name:24}{first:12.0f}{later:8.1f}")
        del os.environ["BRIDGE_CACHE"]


def microseconds(chain: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    """The median time of an operator in the chain."""
    for _ in range(5):
        wait(chain())
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        wait(chain())
        times.append(time.perf_counter() - start)
    return statistics.median(times) / CHAIN * 1e6


def calls() -> None:
    sigmoid = kernels.extension(
        EXAMPLES / "sigmoid" / "sigmoid.cpp",
        "sigmoid(Tensor x) -> Tensor",
        results="x",
        gradient="x: sigmoid_backward(grad, result)",
    )
    data = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    x, torch_x = ms.Tensor(data), torch.tensor(data)

    def own(x):
        for _ in range(CHAIN):
            x = sigmoid(x)
        return x

    def of_aten(x):
        for _ in range(CHAIN):
            x = aten.sigmoid(x)
        return x

    def on_torch(x):
        for _ in range(CHAIN):
            x = torch.sigmoid(x)
        return x

    torch_time = microseconds(lambda: on_torch(torch_x), torch.Tensor.numpy)
    print(f"\na call in a chain of {CHAIN}, 16 x 16, as a ratio to torch.sigmoid")
    for mode, wrap in (("PyNative", lambda function: function), ("graph", ms.jit)):
        for name, chain in (("sigmoid, our kernel", own), ("aten.sigmoid", of_aten)):
            ratio = microseconds(functools.partial(wrap(chain), x), ms.Tensor.asnumpy) / torch_time
            print(f"{mode:10}{name:24}{ratio:8.1f}")


if __name__ == "__main__":
    loading()
    calls()
