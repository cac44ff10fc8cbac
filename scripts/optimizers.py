"""Runs every sample of PyTorch's OptimizerInfo database by bridge.optim beside torch.optim: ten steps, all bits.

    python -m scripts.optimizers                 # all, in both modes
    python -m scripts.optimizers Adam            # those with this in their names
    python -m scripts.optimizers --time          # a step over 150 parameters beside PyTorch's
    python -m scripts.optimizers --device GPU --every 5

Each sample runs with one group, and with two groups of which one has another learning rate; parameters and states are
compared. `--time` prints the lower quartiles of both frameworks' steps, which take turns.
"""

from __future__ import annotations

import argparse
import collections
import copy
import itertools
import statistics
import time
import warnings
from typing import Any

import mindspore as ms
import numpy as np
import torch
from torch.testing._internal.common_optimizers import optim_db

from bridge import optim
from bridge.op import devices

STEPS = 10
SHAPES = ((4, 3), (6,), (2, 5), (3, 3))
MODES = ("pynative", "graph")


def numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def torch_device() -> str:
    """PyTorch's name of MindSpore's device."""
    return devices.torch_name(devices.target())


def groups(parameters: list[Any], split: bool) -> Any:
    return [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.003}] if split else parameters


class Pair:
    """PyTorch's optimizer and the bridge's over equal parameters."""

    def __init__(self, name: str, options: dict[str, Any], shapes: Any, split: bool, mode: str) -> None:
        values = [numbers(shape, i) for i, shape in enumerate(shapes)]
        self.expected = [torch.nn.Parameter(torch.tensor(value, device=torch_device())) for value in values]
        self.own = [ms.Parameter(ms.Tensor(value), name=f"p{i}") for i, value in enumerate(values)]
        self.torch = getattr(torch.optim, name)(groups(self.expected, split), **copy.deepcopy(options))
        self.optimizer = getattr(optim, name)(groups(self.own, split), **copy.deepcopy(options))
        self.apply = ms.jit(self.optimizer) if mode == "graph" else self.optimizer

    def step(self, seed: int) -> None:
        gradients = [numbers(tuple(p.shape), 1000 * seed + i) for i, p in enumerate(self.expected)]
        own = ms.mutable(tuple(map(ms.Tensor, gradients)))
        for parameter, gradient in zip(self.expected, gradients, strict=True):
            parameter.grad = torch.tensor(gradient, device=torch_device())
        if isinstance(self.torch, torch.optim.LBFGS):
            self.torch.step(lambda: torch.tensor(1.0))
            self.optimizer.step(lambda: (ms.Tensor(1.0), own))
        else:
            self.torch.step()
            self.apply(own)

    def difference(self) -> str:
        for own, expected in zip(self.own, self.expected, strict=True):
            if not np.array_equal(own.asnumpy(), expected.detach().cpu().numpy(), equal_nan=True):
                return f"parameter {own.name}"
        states = self.optimizer.state_dict()["state"]
        for number, state in self.torch.state_dict()["state"].items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and not torch.equal(states[number][key].cpu(), value.cpu()):
                    return f"state {key}"
        return ""


def verdict(name: str, options: dict[str, Any], split: bool, mode: str) -> str:
    """Nothing if all bits are equal."""
    shapes = SHAPES if name != "Muon" else tuple(shape for shape in SHAPES if len(shape) == 2)
    try:
        pair = Pair(name, options, shapes, split, mode)
        for step in range(STEPS):
            pair.step(step)
        return pair.difference()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


def sweep(names: list[str], modes: list[str], every: int) -> None:
    total: collections.Counter[str] = collections.Counter()
    equal: collections.Counter[str] = collections.Counter()
    for info in itertools.islice(optim_db, 0, None, every):
        name = str(info.optim_cls.__name__)  # type: ignore[attr-defined]  # it is a class
        if not hasattr(optim, name) or (names and not any(part in name for part in names)):
            continue
        for mode in modes:
            if name == "LBFGS" and mode == "graph":
                continue  # its closure is for PyNative mode
            for sample in info.optim_inputs_func(device=torch_device()):
                for split in (False,) if name == "LBFGS" else (False, True):  # which takes one group only
                    found = verdict(name, sample.kwargs, split, mode)
                    total[mode] += 1
                    equal[mode] += not found
                    if found:
                        print(f"{name} {mode} {sample.desc}{', groups' if split else ''}: {found}", flush=True)
    for mode, count in total.items():
        print(f"{mode}: {equal[mode]} of {count} bit-equal after {STEPS} steps")


def wait() -> None:
    """Let a GPU finish. On a CPU a step has run when its call returns."""
    if devices.target() == "GPU":
        torch.cuda.synchronize()
        ms.runtime.synchronize()


class Step(ms.nn.Cell):
    """A step by gradients that a graph has, as those of a training step: as arguments of the graph each would cost."""

    def __init__(self, optimizer: Any, gradients: list[np.ndarray]) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer
        self.gradients = ms.ParameterTuple(
            [ms.Parameter(ms.Tensor(value), f"g{i}", requires_grad=False) for i, value in enumerate(gradients)]
        )

    def construct(self):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.optimizer(self.gradients)


_WIDTH: tuple[int, ...] = (192,)
_BLOCK = [_WIDTH, _WIDTH, (576, 192), (576,), (192, 192), *3 * [_WIDTH], (768, 192), (768,), (192, 768), _WIDTH]
# 150 parameters each: with little work, and those of ViT-Tiny but its head's.
TIMED: dict[str, list[tuple[int, ...]]] = {
    "small": [(64, 64), (64,), (256, 64)] * 50,
    "ViT-Tiny's": [(1, 1, 192), (1, 197, 192), (192, 3, 16, 16), _WIDTH, *_BLOCK * 12, _WIDTH, _WIDTH],
}


def measure(name: str, options: dict[str, Any], mode: str, which: str) -> None:
    shapes = TIMED[which]
    pair = Pair(name, options, shapes, False, mode)
    gradients = [numbers(shape, i) for i, shape in enumerate(shapes)]
    step = Step(pair.optimizer, gradients)

    def call_in_graph():  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return step()

    own = ms.jit(call_in_graph) if mode == "graph" else step
    for parameter, gradient in zip(pair.expected, gradients, strict=True):
        parameter.grad = torch.tensor(gradient, device=torch_device())
    times: dict[str, list[float]] = {"bridge": [], "PyTorch": []}
    for i in range(60):
        for who, call in (("bridge", own), ("PyTorch", pair.torch.step)):
            wait()
            start = time.perf_counter()
            call()
            wait()
            if i >= 10:
                times[who].append(time.perf_counter() - start)
    bridge, pytorch = (statistics.quantiles(times[who], n=4)[0] * 1e3 for who in ("bridge", "PyTorch"))
    print(f"{name} {options} {mode}, {which}: {bridge:.2f} ms, PyTorch {pytorch:.2f} ms, ratio {bridge / pytorch:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="only every so many optimizers")
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU", help="PyTorch's parameters are there too")
    arguments = parser.parse_args()
    ms.set_device(arguments.device)
    warnings.simplefilter("ignore")
    modes = [arguments.mode] if arguments.mode else list(MODES)
    if arguments.time:
        kinds: tuple[dict[str, Any], ...] = {"fused": True}, {"foreach": True}, {}
        for mode, which, options in itertools.product(modes, TIMED, kinds):
            measure("AdamW", options, mode, which)
    else:
        sweep(arguments.names, modes, arguments.every)


if __name__ == "__main__":
    main()
