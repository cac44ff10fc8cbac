"""One rank of a training in MindSpore, which msrun starts; without msrun, the only process.

It writes the trained Parameters, and how many steps it made in a second, to FOLDER/WAY-RANK.npz.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time
from collections.abc import Callable

import mindspore as ms
import numpy as np
import torch
from mindspore import communication, nn

import bridge

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from parallel.network import LEARNING_RATE, MOMENTUM, SEED, Shard, network

# A way to train: takes the Cell and the shard, and gives steps a second.
Way = Callable[[nn.Cell, Shard], float]


def loss_function() -> nn.Cell:
    return nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")


def optimizer(cell: nn.Cell) -> nn.Optimizer:
    return nn.Momentum(cell.trainable_params(), LEARNING_RATE, MOMENTUM)


class Clock:
    """Steps a second, without the first ones, in which everything is prepared."""

    def __init__(self, steps: int) -> None:
        self._first, self._steps, self._done, self._start = steps // 3, steps, 0, 0.0

    def tick(self) -> None:
        self._done += 1
        if self._done == self._first:
            self._start = time.perf_counter()

    def rate(self) -> float:
        return (self._steps - self._first) / (time.perf_counter() - self._start)


def by_hand(cell: nn.Cell, shard: Shard) -> float:
    """value_and_grad, and the mean of the ranks' gradients."""
    loss_of, optimize = loss_function(), optimizer(cell)
    ranks = communication.get_group_size() if is_parallel() else 1
    reduce = nn.DistributedGradReducer(optimize.parameters, mean=True, degree=ranks) if is_parallel() else None
    differentiate = ms.value_and_grad(lambda x, y: loss_of(cell(x), y), None, optimize.parameters)
    clock = Clock(len(shard))
    for images, labels in shard:
        loss, gradients = differentiate(ms.Tensor(images), ms.Tensor(labels))
        optimize(gradients if reduce is None else reduce(gradients))
        loss.asnumpy()
        clock.tick()
    return clock.rate()


class _Ticking(ms.Callback):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def on_train_step_end(self, run_context: ms.RunContext) -> None:
        run_context.original_args().net_outputs.asnumpy()
        self._clock.tick()


def by_model(cell: nn.Cell, shard: Shard) -> float:
    """Model.train, which averages gradients in MindSpore's data-parallel mode."""
    batches = ms.dataset.GeneratorDataset(list(shard), ["images", "labels"], shuffle=False)
    clock = Clock(len(shard))
    model = ms.Model(cell, loss_function(), optimizer(cell))
    model.train(1, batches, callbacks=[_Ticking(clock)], dataset_sink_mode=False)
    return clock.rate()


WAYS: dict[str, tuple[Way, int]] = {
    "by-hand": (by_hand, ms.PYNATIVE_MODE),
    "Model.train": (by_model, ms.PYNATIVE_MODE),
    "Model.train-graph": (by_model, ms.GRAPH_MODE),
}


def is_parallel() -> bool:
    """Whether msrun started this process."""
    return "MS_WORKER_NUM" in os.environ


def join(device: str) -> tuple[int, int]:
    """This process's rank among the others, and their number."""
    if not is_parallel():
        ms.set_device(device)
        return 0, 1
    if device == "GPU":
        ms.set_device("GPU", int(os.environ.get("DEVICE_ID", "0")))  # msrun's scheduler runs this too, and has none
        communication.init("nccl")
    else:
        ms.set_device("CPU")
        communication.init()
    rank, ranks = communication.get_rank(), communication.get_group_size()
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL,
        gradients_mean=True,
        device_num=ranks,
        global_rank=rank,
        comm_fusion={"allreduce": {"mode": "size", "config": 2**20}},  # MindSpore does not wait for several on a GPU
    )
    return rank, ranks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", choices=("CPU", "GPU"), required=True)
    parser.add_argument("--batch", type=int, required=True, help="of all ranks together")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True, help="PyTorch's, in this process")
    parser.add_argument("--per-rank", action="store_true", help="with batch norm and dropout")
    parser.add_argument("--ways", nargs="+", choices=WAYS, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rank, ranks = join(options.device)
    for name in options.ways:
        way, mode = WAYS[name]
        ms.set_context(mode=mode)
        cell = bridge.cell(network(options.per_rank))
        cell.set_train()
        bridge.manual_seed(SEED + rank)
        rate = way(cell, Shard(options.batch, options.steps, rank, ranks))
        weights = {parameter.name: parameter.asnumpy() for parameter in cell.trainable_params()}
        np.savez(options.folder / f"{name}-{rank}.npz", steps_a_second=np.float64(rate), **weights)


if __name__ == "__main__":
    main()
