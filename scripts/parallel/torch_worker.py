"""One rank of the same training in PyTorch, under DistributedDataParallel, which torchrun starts.

It writes how many steps it made in a second to FOLDER/torch-RANK.npz.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from parallel.network import LEARNING_RATE, MOMENTUM, SEED, Shard, network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", choices=("CPU", "GPU"), required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = torch.device("cuda", rank) if options.device == "GPU" else torch.device("cpu")
    torch.distributed.init_process_group("nccl" if options.device == "GPU" else "gloo")
    module = torch.nn.parallel.DistributedDataParallel(network(per_rank=True).to(place))
    optimizer = torch.optim.SGD(module.parameters(), LEARNING_RATE, MOMENTUM)
    torch.manual_seed(SEED + rank)
    shard = Shard(options.batch, options.steps, rank, ranks)
    first, start = len(shard) // 3, 0.0
    for done, (images, labels) in enumerate(shard):
        if done == first:
            start = time.perf_counter()
        optimizer.zero_grad()
        scores = module(torch.from_numpy(images).to(place))
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels).long().to(place))
        loss.backward()
        optimizer.step()
        loss.item()
    rate = (len(shard) - first) / (time.perf_counter() - start)
    np.savez(options.folder / f"torch-{rank}.npz", steps_a_second=np.float64(rate))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
    # Without Python's own end: a thread of Gloo lets go of its last work, which holds a Python object, at any time, and
    # if Python is ending then, std::terminate ends the process (PyTorch 2.13, 7 of 25 runs on two cores).
    os._exit(0)
