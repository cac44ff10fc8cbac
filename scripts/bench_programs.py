"""Measures a module by bridge.cell beside PyTorch: forward, gradients, training, peak memory, in both modes.

    python scripts/bench_programs.py [--rounds 9] [--only llama] [--threads 1]
    python scripts/bench_programs.py --device GPU
    python scripts/bench_programs.py --busy

`gradients` are those of all parameters, with the results; `training` is that and a step of AdamW. Every way waits for
all that it computes. The ways "in one" call bridge.value_and_grad in place of mindspore.value_and_grad; in graph mode
all of a step is one ms.jit. The ways take turns with a pause between them, because threads of the last way may still
spin. PyTorch's rows have its times and memory; in the others is the median of a way's over PyTorch's of the same round.
torch.compile stands there for comparison, if there is a compiler of C++. With `--busy` another process keeps a core
busy meanwhile. Threads wait for each other then, in some steps long and in others not, so all medians are means there,
and a measurement takes longer. Peak memory is that of steps of training in a process of its own: on a CPU what they add
to its resident memory, which says nothing of networks that need less than some 20 MB; on a GPU what the allocators of
both frameworks have given out.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import itertools
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
import torch

import bridge
from bench_networks import ON_CPU, ON_GPU, Networks, mlp, numbers
from bridge import aten
from bridge.op import devices

PAUSE = 0.05  # seconds
LEAST = 0.3  # seconds that a measurement takes at least
LEAST_BUSY = 2.0  # the same where another process keeps a core busy
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
RATE = 1e-6  # so small that no step of the many leads to other numbers than usual


class Calls(NamedTuple):
    """What a way does, each without arguments."""

    forward: Callable[[], Any]
    gradients: Callable[[], Any]
    training: Callable[[], Any]


def in_torch(module: torch.nn.Module, *arrays: np.ndarray) -> Calls:
    device = devices.torch_name(devices.target())
    module, inputs = module.to(device), [torch.from_numpy(array).to(device) for array in arrays]
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, RATE)

    def gradients() -> Any:
        value = module(*inputs)
        return torch.autograd.grad(value, parameters, torch.ones_like(value))

    def training() -> None:
        optimizer.zero_grad()
        value = module(*inputs)
        value.backward(torch.ones_like(value))
        optimizer.step()

    return Calls(torch.no_grad()(lambda: module(*inputs)), gradients, training)


def in_compile(module: torch.nn.Module, *arrays: np.ndarray) -> Calls:
    return in_torch(torch.compile(module), *arrays)  # type: ignore[arg-type]  # it is a module too


def on_device(array: np.ndarray) -> ms.Tensor:
    """A tensor that MindSpore does not copy to the GPU in each call of a graph, as one from the host."""
    return aten.clone(ms.Tensor(array))


def pynative(module: torch.nn.Module, *arrays: np.ndarray, value_and_grad: Callable[..., Any]) -> Calls:
    net, inputs = bridge.cell(module), [*map(on_device, arrays)]
    optimizer = bridge.optim.AdamW(net.trainable_params(), RATE)
    differentiate = value_and_grad(net, None, optimizer.parameters)

    def training() -> None:
        _, gradients = differentiate(*inputs)
        optimizer(gradients)

    return Calls(lambda: net(*inputs), lambda: differentiate(*inputs), training)


def in_graph(module: torch.nn.Module, *arrays: np.ndarray, value_and_grad: Callable[..., Any]) -> Calls:
    net, inputs = bridge.cell(module), [*map(on_device, arrays)]
    optimizer = bridge.optim.AdamW(net.trainable_params(), RATE)
    differentiate = value_and_grad(net, None, optimizer.parameters)

    def forward(*inputs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(*inputs)

    def gradients(*inputs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(*inputs)

    def training(*inputs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        _, gradients = differentiate(*inputs)
        return optimizer(gradients)

    return Calls(*(functools.partial(ms.jit(function), *inputs) for function in (forward, gradients, training)))


WAYS: dict[str, Callable[..., Calls]] = {
    "PyTorch": in_torch,
    "PyNative": functools.partial(pynative, value_and_grad=ms.value_and_grad),
    "PyNative in one": functools.partial(pynative, value_and_grad=bridge.value_and_grad),
    "graph": functools.partial(in_graph, value_and_grad=ms.value_and_grad),
    "graph in one": functools.partial(in_graph, value_and_grad=bridge.value_and_grad),
    "torch.compile": in_compile,
}
OWN = [way for way in WAYS if way != "torch.compile"]


def ways_here() -> list[str]:
    """The ways, without torch.compile if PyTorch finds no compiler of C++."""
    return list(WAYS) if shutil.which(os.environ.get("CXX", "g++")) else OWN


def on_gpu() -> bool:
    return devices.target() == "GPU"


def networks() -> Networks:
    return ON_GPU if on_gpu() else ON_CPU


def finish() -> None:
    """Wait for what MindSpore has yet to launch, and for every stream. On a CPU all has run by then."""
    if on_gpu():
        ms.runtime.synchronize()
        torch.cuda.synchronize()


def seconds(call: Callable[[], Any], busy: bool = False) -> float:
    """Of one call: the median of those in a row, or beside a busy process their mean."""
    time.sleep(PAUSE)
    call()
    finish()
    times = [time.perf_counter()]
    while times[-1] - times[0] < (LEAST_BUSY if busy else LEAST) or len(times) < 3:
        call()
        finish()
        times.append(time.perf_counter())
    middle = statistics.fmean if busy else statistics.median
    return middle(after - before for before, after in itertools.pairwise(times))


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """Another process that keeps a core busy."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def measure(name: str, rounds: int, busy: bool) -> str:
    """The rows of a network."""
    torch.manual_seed(0)
    make, array = networks()[name]
    module = make().train()
    made = {way: WAYS[way](copy.deepcopy(module), array) for way in ways_here()}
    rows = {way: f"  {way:16}" for way in made}
    for part in Calls._fields:
        with busy_core() if busy else contextlib.nullcontext():
            times = [{way: seconds(getattr(calls, part), busy) for way, calls in made.items()} for _ in range(rounds)]
        middle = {way: (statistics.fmean if busy else statistics.median)(one[way] for one in times) for way in rows}
        for way in rows:
            ratio = statistics.median(one[way] / one["PyTorch"] for one in times)
            if busy:
                ratio = middle[way] / middle["PyTorch"]
            rows[way] += f"{1e3 * middle[way]:8.2f} ms" if way == "PyTorch" else f"{ratio:11.2f}"
    command = [sys.executable, __file__, "--threads", str(torch.get_num_threads()), "--device", devices.target()]
    # MindSpore may print before.
    used = {way: int(subprocess.check_output([*command, "--peak", way, name]).split()[-1]) for way in OWN}
    for way in OWN:
        ratio = used[way] / max(used["PyTorch"], 1)
        rows[way] += f"{used[way] / 1024:8.0f} MB" if way == "PyTorch" else f"{ratio:11.2f}"
    return "\n".join([name, *rows.values()])


def least() -> str:
    """What MindSpore takes for the gradient of next to nothing."""
    x, weight = ms.Tensor(numbers(4)), ms.Parameter(ms.Tensor(numbers(4)), name="weight")

    def product(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return x * weight

    differentiate = ms.value_and_grad(product, None, [weight])

    def compiled(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(x)

    ways = functools.partial(differentiate, x), functools.partial(ms.jit(compiled), x)
    return " and ".join(f"{1e6 * min(seconds(way) for _ in range(5)):.0f} us" for way in ways)


def peak(way: str, name: str) -> int:
    """The KiB of training."""
    make, array = networks()[name]
    WAYS[way](mlp(), networks()["mlp"][1]).training()  # what a first step makes for good
    if not on_gpu():
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = 0 if on_gpu() else resident("VmRSS")
    calls = WAYS[way](make(), array)
    for _ in range(3):
        calls.training()
        finish()
    return (allocated() if on_gpu() else resident("VmHWM")) - before


def allocated() -> int:
    """In KiB: the most that PyTorch's allocator and MindSpore's have given out. The bridge takes memory from both."""
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
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of PyTorch, in all ways")
    parser.add_argument("--busy", action="store_true", help="beside a process that keeps a core busy")
    parser.add_argument("--peak", choices=OWN, help=argparse.SUPPRESS)
    parser.add_argument("name", nargs="?", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ms.set_device(options.device)
    if options.peak:
        print(peak(options.peak, options.name))
        return
    print(" " * 18 + "".join(f"{part:>11}" for part in (*Calls._fields, "memory")))
    for name in networks() if options.only is None else [options.only]:
        print(measure(name, options.rounds, options.busy), flush=True)
    print(f"MindSpore's own gradient of one multiplication takes {least()}, in PyNative and in graph mode.")


if __name__ == "__main__":
    main()
