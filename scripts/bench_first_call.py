"""Measures the first step of ResNet-50 in graph mode: the forward and backward of a batch of 2, compiled and run.

    python scripts/bench_first_call.py

Two processes share a store of programs that is empty before: the first captures the module, the second finds it. Each
prints how long its first call takes, its second call, and PyTorch's. Where other work keeps the cores busy,
OMP_NUM_THREADS=1 says more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import torch

import bridge
from bench_networks import numbers, resnet50


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure() -> str:
    module, array = resnet50().train(), numbers(2, 3, 224, 224)
    net, x, y = bridge.cell(module), ms.Tensor(array), torch.from_numpy(array)
    differentiate = ms.value_and_grad(net, None, ms.ParameterTuple(net.trainable_params()))

    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    compiled = ms.jit(step)
    first, second = seconds(lambda: compiled(x)), seconds(lambda: compiled(x))
    in_torch = seconds(lambda: module(y).sum().backward())
    return f"first call {first:.2f} s, second {second:.2f} s, PyTorch's {in_torch:.2f} s"


def main() -> None:
    if sys.argv[1:] == ["--measure"]:
        print(measure())
        return
    with tempfile.TemporaryDirectory() as store:
        environment = {**os.environ, "BRIDGE_CACHE": store}
        for name in ("captured", "found"):
            found = subprocess.check_output([sys.executable, __file__, "--measure"], env=environment, text=True)
            print(f"{name}: {found}", end="", flush=True)


if __name__ == "__main__":
    main()
