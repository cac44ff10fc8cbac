"""Measures a training step of the networks of networks.py beside PyTorch's, all in one process, as a notebook has them.

    python scripts/bench_many_networks.py                # all
    python scripts/bench_many_networks.py bert resnet    # those with one of these in their names
    python scripts/bench_many_networks.py --device GPU

Each network is compiled beside all those before it, so this also shows what grows with their number. A step is AdamW's,
of the mean of all results. The ways take turns, and each step is awaited. A row has PyTorch's milliseconds, the time of
each way divided by that, and the seconds of the first step in a graph.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings

import mindspore as ms
import torch

from bench_programs import WAYS as PROGRAMS
from bench_programs import finish, seconds
from networks import SOURCES, Flat, Network, available, distinct
from ported.torchvisions import define_torchvisions_operators

WAYS = ("PyTorch", "PyNative", "PyNative in one", "graph in one")


class Loss(torch.nn.Module):
    """The mean of all floating results of a network, added up."""

    def __init__(self, flat: Flat) -> None:
        super().__init__()
        self.flat = flat

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        results = [torch.view_as_real(one) if one.is_complex() else one for one in self.flat(*tensors)]
        return torch.stack([one.float().mean() for one in results if one.is_floating_point()]).sum()


def measure(network: Network, rounds: int) -> str:
    """The row of a network."""
    torch.manual_seed(0)
    module, *inputs = network.make()
    loss, arrays = Loss(Flat(module.train(), inputs)), distinct(inputs)
    steps = {way: PROGRAMS[way](copy.deepcopy(loss), *arrays).training for way in WAYS}
    for step in steps.values():
        before = time.perf_counter()
        step()
        finish()
        first = time.perf_counter() - before  # the last one's is the graph's
    times = [{way: seconds(step) for way, step in steps.items()} for _ in range(rounds)]
    own_ms = 1e3 * statistics.median(one["PyTorch"] for one in times)
    ratios = (statistics.median(one[way] / one["PyTorch"] for one in times) for way in steps if way != "PyTorch")
    return f"{own_ms:9.2f} ms" + "".join(f"{ratio:17.2f}" for ratio in ratios) + f"{first:10.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="measure the networks with one of these in their names")
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU")
    parser.add_argument("--rounds", type=int, default=3, help="how often the ways take turns")
    options = parser.parse_args()
    ms.set_device(options.device)
    warnings.filterwarnings("ignore")
    define_torchvisions_operators()
    print(f"{'network':45}" + "".join(f"{way:>{12 if way == 'PyTorch' else 17}}" for way in WAYS) + f"{'first':>12}")
    for source in SOURCES:
        for network in available(source):
            if not options.names or any(name.lower() in network.name.lower() for name in options.names):
                print(f"{network.name:45}{measure(network, options.rounds)}", flush=True)


if __name__ == "__main__":
    main()
