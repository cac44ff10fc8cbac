#!/usr/bin/env python3
"""What the GPU does during chains of calls, by PyTorch's profiler: the kernels' own time, the gaps between them, and
how often the host waits for the device.

    python scripts/trace_gpu.py                   # tensors of 4096 by 4096, both modes
    python scripts/trace_gpu.py --size 1024 --json trace.json
    python scripts/trace_gpu.py --networks        # forward and gradients of whole networks

Per link of a chain: microseconds of kernels and copies, and of the gaps between them; the number of kernels. For the
whole chain: the calls that make the host wait (cudaStreamSynchronize and the like), whoever makes them, with those at
its end. The ratios are between kernel times.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mindspore as ms
import torch
from torch.autograd import DeviceType

from bench.cases import CASES, Case
from bench.chains import Chains
from bench_networks import ON_GPU
from bench_programs import OWN
from bench_programs import WAYS as PROGRAMS

LENGTH = 20
WAYS = ("bridge", "mindspore", "torch")


@dataclass
class Trace:
    """One link of a chain on average; `waits` are those of the whole chain, the last one included."""

    kernel_us: float
    gap_us: float
    kernels: float
    waits: dict[str, int]


def trace(run: Callable[[], Any], finish: Callable[[], None], length: int) -> Trace:
    """What `length` links do that `run` starts; `finish` waits for them, which is not counted."""
    run()
    finish()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        kept = run()
        finish()
    del kept
    events = profile.events()
    on_device = sorted((e.time_range.start, e.time_range.end) for e in events if e.device_type == DeviceType.CUDA)
    busy = sum(end - start for start, end in on_device)
    span = on_device[-1][1] - on_device[0][0] if on_device else 0.0
    waits = Counter(e.name for e in events if "Synchronize" in e.name)
    return Trace(busy / length, (span - busy) / length, len(on_device) / length, dict(waits))


def traces(case: Case, size: int, mode: str) -> dict[str, Trace]:
    chains = Chains(case, size, mode, "GPU")
    found = {}
    for way in WAYS:
        made = chains.chain(way, LENGTH)
        if made is None:
            continue
        chain, inputs = made
        finish = torch.cuda.synchronize if way == "torch" else ms.runtime.synchronize
        try:
            found[way] = trace(functools.partial(chain, *inputs), finish, LENGTH)
        except RuntimeError:
            if way != "mindspore":
                raise  # MindSpore alone may have no kernel for it
    return found


def trace_networks() -> None:
    """A row for each network of bench_networks.py and way of bench_programs.py."""
    print(f"{'forward and gradients':40} {'kernels ms':>10} {'gaps ms':>8} {'kernels':>8}  waits")
    for name, (make, array) in ON_GPU.items():
        module = make().train()
        for way in OWN:
            calls = PROGRAMS[way](copy.deepcopy(module), array)
            found = trace(calls.gradients, torch.cuda.synchronize, 1)
            print(
                f"{name + ', ' + way:40} {found.kernel_us / 1e3:10.2f} {found.gap_us / 1e3:8.2f} {found.kernels:8.0f}  "
                f"{found.waits}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--networks", action="store_true", help="whole networks in place of chains")
    parsed = parser.parse_args()
    ms.set_device("GPU")
    if parsed.networks:
        trace_networks()
        return
    rows = []
    print(
        f"{'per link':22}"
        + "".join(f"{way + ' µs':>13}{'gaps':>8}{'kernels':>8}{'waits':>6}" for way in WAYS)
        + f"{'/ mindspore':>12}{'/ torch':>9}"
    )
    for mode in ("pynative", "graph"):
        ms.set_context(mode=ms.PYNATIVE_MODE if mode == "pynative" else ms.GRAPH_MODE)
        for case in CASES:
            found = traces(case, parsed.size, mode)
            rows.append({"op": case.name, "mode": mode, "traces": {way: asdict(t) for way, t in found.items()}})
            text = f"{mode:9}{case.name:13}"
            for way in WAYS:
                t = found.get(way)
                text += (
                    f"{t.kernel_us:13.1f}{t.gap_us:8.1f}{t.kernels:8.1f}{sum(t.waits.values()):6}"
                    if t
                    else f"{'-':>13}{'-':>8}{'-':>8}{'-':>6}"
                )
            for way, width in (("mindspore", 12), ("torch", 9)):
                ratio = f"{found['bridge'].kernel_us / found[way].kernel_us:.3f}" if way in found else "-"
                text += f"{ratio:>{width}}"
            print(text, flush=True)
    if parsed.json:
        parsed.json.write_text(json.dumps({"size": parsed.size, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
