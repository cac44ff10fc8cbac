"""Measures a module by bridge.cell beside PyTorch: forward, training step, peak memory, in PyNative and graph mode.

    python scripts/bench_programs.py [--rounds 9] [--only llama]
    python scripts/bench_programs.py --device GPU

A training step computes the results and the gradients of all parameters, and waits for them. The ways take turns with a
pause between them, because threads of the last way may still spin. The first column of a part is PyTorch's time or
memory; the others are the median of a way's over PyTorch's of the same round. torch.compile stands there for
comparison; its column is empty where there is no compiler of C++. Each call is awaited. Peak memory is that of three
training steps in a process of its own: on a CPU what they add to its resident memory, which says nothing of networks
that need less than some 20 MB; on a GPU what the framework's allocator has given out.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import torch
from torch.nn import functional as F

import bridge
from bridge.op import devices

PAUSE = 0.05  # seconds
LEAST = 0.1  # seconds that a measurement takes at least


class Block(torch.nn.Module):
    """Of a GPT, or of a vision transformer if nothing is masked."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Bottleneck(torch.nn.Module):
    """Of a ResNet-50."""

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        conv, norm = torch.nn.Conv2d, torch.nn.BatchNorm2d
        self.conv1, self.norm1 = conv(a, b, 1, bias=False), norm(b)
        self.conv2, self.norm2 = conv(b, b, 3, stride, 1, bias=False), norm(b)
        self.conv3, self.norm3 = conv(b, 4 * b, 1, bias=False), norm(4 * b)
        same = stride == 1 and a == 4 * b
        self.short: torch.nn.Module = torch.nn.Identity() if same else torch.nn.Sequential(
            conv(a, 4 * b, 1, stride, bias=False), norm(4 * b))  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        return F.relu(self.norm3(self.conv3(y)) + self.short(x), inplace=True)


class GPT(torch.nn.Module):
    def __init__(self, width: int = 256, layers: int = 6, heads: int = 8, words: int = 1000, length: int = 64) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(words, width)
        self.places = torch.nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = torch.nn.Sequential(*(Block(width, heads, True) for _ in range(layers)))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places)))


class ViT(torch.nn.Module):
    """ViT-Tiny or a larger one, of 16 by 16 patches."""

    def __init__(self, width: int = 192, layers: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, width, 16, 16)
        self.token = torch.nn.Parameter(torch.zeros(1, 1, width))
        self.places = torch.nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.blocks = torch.nn.Sequential(*(Block(width, heads, False) for _ in range(layers)))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class LlamaBlock(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (torch.nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (torch.nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(3 * width, width, bias=False)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """Rotary positions."""
        batch, length, width = x.shape
        x = x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        half = x.shape[-1] // 2
        places, powers = (torch.arange(count, device=x.device) for count in (length, half))
        angles = torch.outer(places, 10000.0 ** (-powers / half))
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k = self.turned(self.q(y)), self.turned(self.k(y))
        v = self.v(y).view(*y.shape[:2], self.heads, -1).transpose(1, 2)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def llama() -> torch.nn.Module:
    blocks = [LlamaBlock(64, 4) for _ in range(2)]
    return torch.nn.Sequential(
        torch.nn.Embedding(256, 64), *blocks, torch.nn.RMSNorm(64), torch.nn.Linear(64, 256, bias=False)
    )


def cnn() -> torch.nn.Module:
    def layer(a: int, b: int) -> list[torch.nn.Module]:
        return [torch.nn.Conv2d(a, b, 3, padding=1), torch.nn.BatchNorm2d(b), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]

    last = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 10)]
    return torch.nn.Sequential(*layer(3, 32), *layer(32, 64), *layer(64, 128), *last)


class Residual(torch.nn.Module):
    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = torch.nn.Conv2d(a, b, 3, stride, 1, bias=False), torch.nn.BatchNorm2d(b)
        self.conv2, self.norm2 = torch.nn.Conv2d(b, b, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(b)
        same = stride == 1 and a == b
        self.short: torch.nn.Module = torch.nn.Identity() if same else torch.nn.Sequential(
            torch.nn.Conv2d(a, b, 1, stride, bias=False), torch.nn.BatchNorm2d(b))  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.short(x), inplace=True)


def resnet18() -> torch.nn.Module:
    first = [torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU(True),
             torch.nn.MaxPool2d(3, 2, 1)]  # fmt: skip
    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [Residual(a, b, 1 if a == b else 2) for a, b in itertools.pairwise(widths)]
    return torch.nn.Sequential(
        *first, *blocks, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 1000)
    )


def resnet50() -> torch.nn.Module:
    layers, a = [torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU(True),
                 torch.nn.MaxPool2d(3, 2, 1)], 64  # fmt: skip
    for b, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for i in range(blocks):
            layers.append(Bottleneck(a, b, 2 if i == 0 and b > 64 else 1))
            a = 4 * b
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(2048, 1000))


def mlp() -> torch.nn.Module:
    linear = torch.nn.Linear
    return torch.nn.Sequential(linear(256, 256), torch.nn.GELU(), linear(256, 256), torch.nn.GELU(), linear(256, 10))


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def tokens(words: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, words, shape)


Networks = dict[str, tuple[Callable[[], torch.nn.Module], np.ndarray]]
ON_CPU: Networks = {
    "mlp": (mlp, numbers(32, 256)),
    "llama": (llama, tokens(256, 4, 32)),
    "gpt": (GPT, tokens(1000, 8, 64)),
    "cnn": (cnn, numbers(8, 3, 64, 64)),
    "vit": (ViT, numbers(4, 3, 224, 224)),
    "resnet18": (resnet18, numbers(4, 3, 224, 224)),
}
ON_GPU: Networks = {
    "mlp": (mlp, numbers(32, 256)),
    "llama": (llama, tokens(256, 4, 32)),
    "gpt": (GPT, tokens(1000, 8, 64)),
    "cnn": (cnn, numbers(8, 3, 64, 64)),
    "resnet50": (resnet50, numbers(8, 3, 224, 224)),
    "vit-small": (lambda: ViT(384, 12, 6), numbers(32, 3, 224, 224)),
    "gpt-1024": (lambda: GPT(1024, 12, 16, 8000, 512), tokens(8000, 8, 512)),
}


def networks() -> Networks:
    return ON_GPU if on_gpu() else ON_CPU


def on_gpu() -> bool:
    return devices.target() == "GPU"


def finish() -> None:
    """Wait for all that was started; on a CPU it has run by then."""
    if on_gpu():
        torch.cuda.synchronize()  # of all streams, MindSpore's too


Ways = tuple[Callable[[], Any], Callable[[], Any]]  # forward, and a training step


def torch_ways(module: torch.nn.Module, array: np.ndarray) -> Ways:
    device = devices.torch_name(devices.target())
    module, x = module.to(device), torch.from_numpy(array).to(device)
    parameters = list(module.parameters())

    def step() -> Any:
        value = module(x)
        return torch.autograd.grad(value, parameters, torch.ones_like(value))

    return torch.no_grad()(lambda: module(x)), step


def compile_ways(module: torch.nn.Module, array: np.ndarray) -> Ways:
    return torch_ways(torch.compile(module), array)  # type: ignore[arg-type]  # it is a module too


def pynative_ways(module: torch.nn.Module, array: np.ndarray) -> Ways:
    return cell_ways(bridge.cell(module), array)


def cell_ways(cell: ms.nn.Cell, array: np.ndarray) -> Ways:
    x = ms.Tensor(array)
    differentiate = ms.value_and_grad(cell, None, cell.trainable_params())
    return lambda: cell(x), lambda: differentiate(x)


def graph_ways(module: torch.nn.Module, array: np.ndarray) -> Ways:
    return compiled_ways(bridge.cell(module), array)


def compiled_ways(cell: ms.nn.Cell, array: np.ndarray) -> Ways:
    x, weights = ms.Tensor(array), ms.ParameterTuple(cell.trainable_params())

    def forward(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return cell(x)

    def step(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return ms.value_and_grad(forward, None, weights)(x)

    compiled_forward, compiled_step = ms.jit(forward), ms.jit(step)
    return lambda: compiled_forward(x), lambda: compiled_step(x)


def seconds(way: Callable[[], Any]) -> float:
    """Of one call."""
    time.sleep(PAUSE)
    way()
    finish()
    calls, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < LEAST:
        way()
        finish()
        calls += 1
    return (time.perf_counter() - begin) / calls


WAYS: dict[str, Callable[[torch.nn.Module, np.ndarray], Ways]] = {
    "torch": torch_ways, "PyNative": pynative_ways, "graph": graph_ways, "compile": compile_ways
}  # fmt: skip


def ways_here() -> list[str]:
    """The ways, without torch.compile if PyTorch finds no compiler of C++."""
    return [way for way in WAYS if way != "compile" or shutil.which(os.environ.get("CXX", "g++"))]


def measure(name: str, rounds: int) -> str:
    """A row of the table."""
    torch.manual_seed(0)
    make, array = networks()[name]
    module = make().train()
    made = {way: WAYS[way](copy.deepcopy(module), array) for way in ways_here()}
    row = f"{name:10}"
    for part in range(2):
        calls = {way: both[part] for way, both in made.items()}
        times = [{way: seconds(call) for way, call in calls.items()} for _ in range(rounds)]
        row += f" {1e3 * statistics.median(one['torch'] for one in times):9.2f}"
        for way in list(WAYS)[1:]:
            row += (
                f" {statistics.median(one[way] / one['torch'] for one in times):9.2f}" if way in calls else f" {'-':>9}"
            )
    command = [sys.executable, __file__, "--device", devices.target(), "--peak"]
    used = {way: int(subprocess.check_output([*command, way, name])) for way in PEAKS}
    return (
        row
        + f" {used['torch'] / 1024:9.0f}"
        + "".join(f" {used[way] / max(used['torch'], 1):9.2f}" for way in PEAKS[1:])
    )


class Least(ms.nn.Cell):
    """One of MindSpore's operators and one Parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(numbers(4)), name="weight")

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return x * self.weight


def least() -> str:
    """What MindSpore takes for a training step in which next to nothing is computed."""
    ways = cell_ways(Least(), numbers(4))[1], compiled_ways(Least(), numbers(4))[1]
    return " and ".join(f"{1e6 * min(seconds(way) for _ in range(5)):.0f} us" for way in ways)


PEAKS = ["torch", "PyNative", "graph"]


def peak(way: str, name: str) -> int:
    """The KiB of training steps."""
    make, array = networks()[name]
    WAYS[way](mlp(), networks()["mlp"][1])[1]()  # what a first step makes for good
    if not on_gpu():
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = 0 if on_gpu() else resident("VmRSS")
    _, step = WAYS[way](make(), array)
    for _ in range(3):
        step()
        finish()
    return (allocated() if on_gpu() else resident("VmHWM")) - before


def allocated() -> int:
    """In KiB: what PyTorch's allocator and MindSpore's have given out at most. The bridge takes memory from both."""
    return (torch.cuda.max_memory_allocated() + ms.runtime.max_memory_allocated()) // 1024


def resident(entry: str) -> int:
    """In KiB."""
    found = re.search(rf"{entry}:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="how often the ways take turns")
    parser.add_argument("--only", choices=sorted(ON_CPU | ON_GPU), help="one network")
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU")
    parser.add_argument("--peak", choices=PEAKS, help=argparse.SUPPRESS)
    parser.add_argument("name", nargs="?", help=argparse.SUPPRESS)
    options = parser.parse_args()
    ms.set_device(options.device)
    if options.peak:
        print(peak(options.peak, options.name))
        return
    times = "".join(f" {way:>9}" for way in ["torch ms", *list(WAYS)[1:]])
    memory = "".join(f" {way:>9}" for way in ["torch MB", *PEAKS[1:]])
    print(f"{'':10} {'forward':>{9}}{'':31} {'step':>9}{'':31} {'memory':>9}\n{'':10}{times}{times}{memory}")
    for name in networks() if options.only is None else [options.only]:
        print(measure(name, options.rounds), flush=True)
    print(f"MindSpore's own step of one multiplication takes {least()}, in PyNative and in graph mode.")


if __name__ == "__main__":
    main()
