"""Train a PyTorch module on several devices, on MindSpore's own engine, and compare.

    python -m scripts.parallel                               # two workers on the CPU
    python -m scripts.parallel --device GPU --workers 1 2 4

For each number of workers: whether all ranks have the same bits after training with batch norm and dropout, and steps
a second beside PyTorch's DistributedDataParallel. For more than one, also the largest relative difference from one
process with the whole batch, for a network in which ranks do nothing by themselves. It is to be at most 1e-6, since
ranks add the same gradients in another order.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent
MOST = 1e-6  # of the largest element of each Parameter
WAYS = ("by-hand", "Model.train", "Model.train-graph")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Runs:
    """Trainings of one set of options.

    Args:
        options: of the command line.
        folder: for what the processes write.
    """

    def __init__(self, options: argparse.Namespace, folder: pathlib.Path) -> None:
        self.folder = folder
        self._size = ["--device", options.device, "--batch", str(options.batch), "--steps", str(options.steps)]

    def in_mindspore(self, name: str, workers: int, per_rank: bool) -> pathlib.Path:
        """Train by all ways; gives the folder of what was written."""
        place = self._place(name)
        command = [str(HERE / "mindspore_worker.py"), str(place), *self._size, *self._threads(workers),
                   "--ways", *WAYS, *(["--per-rank"] if per_rank else [])]  # fmt: skip
        if workers == 1:
            self._run(place, [sys.executable, *command])
        else:
            here = [f"--worker_num={workers}", f"--local_worker_num={workers}", f"--master_port={free_port()}"]
            join = ["--join=True", f"--log_dir={place / 'logs'}", "--cluster_time_out=120"]
            self._run(place, [sys.executable, "-m", "mindspore.parallel.cluster.run", *here, *join, *command])
        return place

    def in_torch(self, name: str, workers: int) -> pathlib.Path:
        place = self._place(name)
        self._run(place, [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={workers}",
                          f"--master-port={free_port()}", str(HERE / "torch_worker.py"), str(place), *self._size,
                          *self._threads(workers)])  # fmt: skip
        return place

    def _threads(self, workers: int) -> list[str]:
        return ["--threads", str(max(1, len(os.sched_getaffinity(0)) // workers))]

    def _place(self, name: str) -> pathlib.Path:
        place = self.folder / name
        place.mkdir()
        return place

    def _run(self, place: pathlib.Path, command: list[str]) -> None:
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            logs = [path.read_text() for path in sorted(place.glob("logs/worker_*.log"))]
            raise SystemExit("\n".join([*logs, done.stdout, f"{place.name} failed: exit code {done.returncode}"]))


def weights(place: pathlib.Path, way: str, rank: int) -> dict[str, np.ndarray]:
    with np.load(place / f"{way}-{rank}.npz") as found:
        return {name: found[name] for name in found if name != "steps_a_second"}


def rate(place: pathlib.Path, way: str, workers: int) -> float:
    return min(float(np.load(place / f"{way}-{rank}.npz")["steps_a_second"]) for rank in range(workers))


def are_equal(place: pathlib.Path, way: str, workers: int) -> bool:
    first, *others = (weights(place, way, rank) for rank in range(workers))
    return all(np.array_equal(first[name], other[name]) for other in others for name in first)


def difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    return max(float(np.abs(one[name] - other[name]).max() / np.abs(other[name]).max()) for name in other)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU")
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--batch", type=int, default=64, help="images in a batch of all workers together")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        runs = Runs(options, pathlib.Path(temporary))
        alone = runs.in_mindspore("one process", 1, per_rank=False)
        for workers in options.workers:
            own = runs.in_mindspore(f"{workers} workers", workers, per_rank=True)
            theirs = rate(runs.in_torch(f"{workers} workers of PyTorch", workers), "torch", workers)
            shared = runs.in_mindspore(f"{workers} workers, no batch norm", workers, per_rank=False)
            print(f"{workers} worker(s); PyTorch's DistributedDataParallel: {theirs:.1f} steps a second")
            for way in WAYS:
                equal = are_equal(own, way, workers) and are_equal(shared, way, workers)
                off = difference(weights(shared, way, 0), weights(alone, way, 0))
                steps = rate(own, way, workers)
                failed |= not equal or off > MOST
                print(f"  {way:18} ranks {'equal' if equal else 'DIFFER'}, {off:.1e} from one process, "
                      f"{steps:.1f} steps a second ({steps / theirs:.2f} of PyTorch's)", flush=True)  # fmt: skip
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
