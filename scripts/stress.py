"""Random calls, valid and invalid, of every operator: none may end the process, hang it or make it grow.

    python scripts/stress.py                        # 10,000 calls
    python scripts/stress.py --calls 500 --seed 3
    python scripts/stress.py --seed 0 --only 1234   # one call again, in this process
    python scripts/stress.py --memory               # what a call costs in memory that stays
    python scripts/stress.py --training             # what a training step does: here, in MindSpore's operators, in none

The calls run in child processes, so that a crash costs one call and is reported with its arguments.
"""
from __future__ import annotations

import argparse
import collections
import ctypes
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # bridge in place, unless it is installed

# What a call may raise.
EXPECTED = (TypeError, ValueError, RuntimeError, IndexError, OverflowError)

# Operators left out, because PyTorch 2.13 itself crashes on some arguments: a call in plain PyTorch that ends the
# process. An entry goes when the bridge or PyTorch refuses the call.
PYTORCH_DOES_NOT_SURVIVE = {
    "_batch_norm_impl_index_backward": "save_mean and save_var_transform of None with impl_index 5: SIGSEGV",
    "_cholesky_solve_helper": "_cholesky_solve_helper(ones(0, 0, 3), ones(3, 0), False): SIGSEGV",
    "_fft_r2c": "_fft_r2c(ones(4, 0, 5, 3, 1), [2, -2], -1, True): SIGSEGV",
    "_foreach_copy": "_foreach_copy([], [ones(3)]): SIGSEGV",
    "_linalg_eigvals": "_linalg_eigvals(full((3, 3), nan)): SIGSEGV",
    "_log_softmax_backward_data": "output of ones(2, 3, 1) and grad_output of ones(2, 3, 0): SIGFPE",
    "_native_batch_norm_legit": "no_stats(ones(2, 5), None, ones(4, 0, 5, 0), False, 0.1, 0.0): SIGSEGV",
    "_new_zeros_with_same_feature_meta": "a negative self_num_batch_dims: SIGSEGV",
    "_nnpack_spatial_convolution": "a stride of 0: SIGFPE",
    "_pdist_backward": "_pdist_backward(ones(0, 4), ones(0, 4), 1e300, ones(0, 4)): SIGSEGV",
    "_pdist_forward": "_pdist_forward(ones(3, 3, 0)): SIGSEGV",
    "_remove_batch_dim": "_remove_batch_dim(ones(3, 3, 5), 3, -2, -2): SIGSEGV",
    "_stack": "_stack([]): SIGSEGV",
    "_thnn_differentiable_gru_cell_backward": "input_bias of ones and hidden_bias of None: SIGSEGV",
    "_thnn_differentiable_lstm_cell_backward": "gradients of None: SIGSEGV",
    "_transform_bias_rescale_qkv": "_transform_bias_rescale_qkv(ones(4, 0, 4), ones(4, 0, 4), 0): SIGFPE",
    "_weight_norm_interface": "_weight_norm_interface(ones(2, 1, 3, 0), ones(2, 1, 3, 0), 0): SIGSEGV",
    "fbgemm_linear_quantize_weight": "fbgemm_linear_quantize_weight(ones(2, 5, 0)): SIGSEGV",
    "linalg_matrix_power": "linalg_matrix_power(ones(1, 1), -(2**63)): does not end",
    "lu_unpack": "lu_unpack(ones(3, 5), ones(0)): SIGSEGV",
    "matrix_power": "matrix_power(ones(1, 1), -(2**63)): does not end",
    "native_batch_norm": "running_mean of ones(0): SIGSEGV",
    "native_layer_norm_backward": "grad_out of ones(0, 2, 3) for an input of ones(1, 2, 3): SIGSEGV",
}

SECONDS_PER_CALL = 30
MEMORY_LIMIT = 24 << 30  # of address space: a hopeless allocation fails at once

WORDS = ["none", "mean", "sum", "tanh", "constant", "reflect", "linear", "floor", "trunc", "fro", "nuc", "L", "U",
         "ij->ji", "ij,jk->ik", "valid", "same", "left", "lower", "reduced", "amax", "", "junk", "\0", "é"]  # fmt: skip


class Caller:
    """Makes the calls of a seed; each call has its own random numbers, so that it can be made alone."""

    def __init__(self, seed: int) -> None:
        import mindspore as ms
        import numpy as np
        import torch

        from bridge import aten
        from bridge.op import dtypes
        from bridge.op.schema import schema
        from bridge.op.table import packets
        from bridge.primitive.tensors import from_torch

        self.seed = seed
        self.aten, self.ms, self.np, self.torch, self.schema = aten, ms, np, torch, schema
        self.from_torch = from_torch
        self.dtypes = list(dtypes.TORCH_DTYPES.values())
        self.names = [name for packet in sorted(packets()) for name in sorted(packets()[packet])]
        self.names = [name for name in self.names if name.partition(".")[0] not in PYTORCH_DOES_NOT_SURVIVE]

    def make(self, number: int) -> tuple[str, list[Any], dict[str, Any]]:
        """The operator's name and the arguments of call `number`."""
        self.draw = random.Random(f"{self.seed} {number}")
        name = self.draw.choice(self.names)
        # Most calls are meant to be valid: one shape and dtype for all tensors.
        self.shape = self.random_shape()
        self.dtype = self.draw.choice(self.dtypes) if self.draw.random() < 0.3 else self.torch.float32
        self.wild = 0.03 if self.draw.random() < 0.5 else 0.0
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in self.schema(name).arguments:
            if not argument.required and self.draw.random() < 0.5:
                continue
            value = self.value(argument)
            if argument.keyword_only or kwargs or len(args) != self.schema(name).arguments.index(argument):
                kwargs[argument.name] = value
            else:
                args.append(value)
        if self.draw.random() < self.wild:
            kwargs["junk"] = 1
        if args and self.draw.random() < self.wild:
            args.pop()
        return name, args, kwargs

    def random_shape(self) -> tuple[int, ...]:
        rank = self.draw.choice([0, 1, 2, 2, 2, 3, 3, 4, 5])
        return tuple(self.draw.choice([0, 1, 2, 3, 3, 4, 5]) for _ in range(rank))

    def value(self, argument: Any) -> Any:
        if self.draw.random() < self.wild:
            return self.junk()
        if argument.is_optional and self.draw.random() < 0.4:
            return None
        if argument.is_list:
            return [self.single(argument) for _ in range(argument.size or self.draw.choice([0, 1, 1, 2, 2, 3, 4]))]
        return self.single(argument)

    def single(self, argument: Any) -> Any:
        if argument.items_optional and self.draw.random() < 0.3:
            return None
        return getattr(self, f"random_{argument.base}")()

    def random_Tensor(self) -> Any:
        shape = self.random_shape() if self.draw.random() < 0.25 else self.shape
        dtype = self.draw.choice(self.dtypes) if self.draw.random() < 0.15 else self.dtype
        if self.draw.random() < 0.15:
            dtype = self.torch.int64
        low, high = self.draw.choice([(0, 2), (-3, 4), (0, 6)])
        numbers = self.np.random.default_rng(self.draw.randrange(2**32)).uniform(low, high, shape)
        if self.draw.random() < 0.1:
            special = self.draw.choice([self.np.nan, self.np.inf, -self.np.inf, 1e30])
            numbers = self.np.where(numbers > 1, special, numbers)
        with self.np.errstate(all="ignore"):
            return self.from_torch(self.torch.as_tensor(numbers).to(dtype))

    def random_int(self) -> int:
        if self.draw.random() < 0.04:
            # 2^40 and not 2^31: a valid call that fills 8 GiB would only take long.
            return self.draw.choice([2**40, -(2**31), 2**62, 2**63 - 1, -(2**63), 2**63])
        return self.draw.choice([-2, -1, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5])

    def random_float(self) -> float:
        return self.draw.choice([0.0, 0.5, 1.0, 1e-5, -1.0, 2.0, 1e300, float("inf"), float("nan")])

    def random_number(self) -> Any:
        return self.draw.choice([self.random_float(), self.random_int(), True, 1 + 2j])

    def random_bool(self) -> bool:
        return self.draw.random() < 0.5

    def random_str(self) -> str:
        return self.draw.choice(WORDS)

    def random_ScalarType(self) -> Any:
        return self.draw.choice([*self.dtypes, self.ms.float32, self.ms.int64])

    def random_Layout(self) -> Any:
        return self.torch.strided

    def random_MemoryFormat(self) -> Any:
        return self.draw.choice([self.torch.contiguous_format, self.torch.preserve_format, self.torch.channels_last])

    def random_Device(self) -> str:
        return "cpu"

    def random_Generator(self) -> None:
        return None

    def junk(self) -> Any:
        return self.draw.choice([
            None, "junk", {}, [], [None], object, 1.5, -1, 2**64, 10**400, True, 1j, (), [[]], b"bytes", range(3),
            self.np.ones(2), self.torch.ones(2), self.random_Tensor(), self.ms.float32, slice(1), float("nan"),
        ])  # fmt: skip

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> str:
        """Make the call and wait for its end; returns "ok" or the class of an expected exception."""
        from mindspore.ops.primitive import _pynative_executor

        packet, _, overload = name.partition(".")
        operator = getattr(self.aten, packet)
        try:
            try:
                getattr(operator, overload or "default")(*args, **kwargs)
            finally:
                _pynative_executor.sync()
        except EXPECTED as error:
            assert "frame #0" not in str(error), f"a C++ backtrace: {error}"
            return type(error).__name__
        return "ok"


def describe(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(describe, value))}]"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{type(value).__name__}({tuple(value.shape)}, {value.dtype})"
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def rss() -> int:
    """Resident memory of this process in MiB, without what the allocator holds free for reuse."""
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


def child(seed: int, first: int, last: int, log: pathlib.Path) -> None:
    """Make the calls from `first` to before `last`; each is logged before it is made, and its outcome after."""
    import faulthandler

    import mindspore as ms
    import numpy as np

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    caller = Caller(seed)
    probe = ms.Tensor(np.array([-1.0, 2.0], np.float32))
    with log.open("a") as out:
        for number in range(first, last):
            name, args, kwargs = caller.make(number)
            arguments = [*map(describe, args), *(f"{k}={describe(v)}" for k, v in kwargs.items())]
            out.write(f"call {number} aten.{name}({', '.join(arguments)})\n")
            out.flush()
            faulthandler.dump_traceback_later(SECONDS_PER_CALL, exit=True)
            try:
                outcome = caller.call(name, args, kwargs)
            except Exception as error:
                outcome = f"unexpected {type(error).__name__}: {str(error)[:300]!r}"
            faulthandler.cancel_dump_traceback_later()
            out.write(f"done {number} {outcome}\n")
            if number % 100 == 99:
                assert caller.aten.leaky_relu(probe, 0.5).asnumpy().tolist() == [-0.5, 2.0]
                out.write(f"rss {number} {rss()}\n")


@dataclass
class Report:
    """How some calls went."""

    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)
    """The calls that ended or hung the process or raised something unexpected."""
    memory: list[tuple[int, int]] = field(default_factory=list)
    """(call, MiB)"""


def run(seed: int, calls: int, progress: bool = False) -> Report:
    """Make `calls` calls in child processes; a new one follows one that died."""
    report = Report()
    first = 0
    while first < calls:
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            command = [sys.executable, __file__, "--child", str(first), str(calls), str(log), "--seed", str(seed)]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, cwd=folder)
            last = ""
            for line in log.read_text().splitlines() if log.exists() else []:
                kind, number, rest = line.split(" ", 2)
                if kind == "call":
                    last, first = f"{number} {rest}", int(number) + 1
                elif kind == "rss":
                    report.memory.append((int(number), int(rest)))
                else:
                    report.outcomes[rest.split(":")[0]] += 1
                    if rest.startswith("unexpected"):
                        report.failures.append(f"{last}: {rest}")
                    last = ""
            if done.returncode:
                report.failures.append(f"{last}: the process ended with {done.returncode}: {done.stderr[-600:]}")
                if not last:
                    break
        if progress:
            print(f"{first} calls, {len(report.failures)} failures", flush=True)
    return report


def memory() -> None:
    """Print what stays in memory per call: for the same call again and again, for new numbers, for new shapes."""
    import mindspore as ms
    import numpy as np

    from bridge import aten

    x = ms.Tensor(np.ones((16, 16), np.float32))
    rows = [ms.Tensor(np.ones((n % 300 + 1, n // 300 + 1), np.float32)) for n in range(3000)]

    def repeated(n: int) -> None:
        aten.leaky_relu(x, 0.1).asnumpy()

    def new_number(n: int) -> None:
        aten.leaky_relu(x, 0.1 + n * 1e-6).asnumpy()

    def new_shape(n: int) -> None:
        aten.leaky_relu(rows[n % len(rows)], 0.1).asnumpy()

    for name, call, calls in (("repeated", repeated, 20000), ("new number", new_number, 9000),
                              ("new shape", new_shape, 3000), ("known shape", new_shape, 3000)):  # fmt: skip
        steps = []
        for n in range(calls):
            if n % (calls // 5) == 0:
                steps.append(rss())
            call(n)
        steps.append(rss())
        # The first step warms up.
        per_call = (steps[-1] - steps[1]) * 1024 / (calls * 4 / 5)
        print(f"{name:12} {calls:6} calls, RSS in MiB: {steps}, {per_call:.2f} KiB a call")


def training(steps: int) -> None:
    """Print what stays in memory per step of training a small net, in the bridge's operators, in MindSpore's, and in
    none: differentiating itself leaves something behind in MindSpore."""
    import mindspore as ms
    import numpy as np
    from mindspore import ops

    from bridge import aten

    numbers = np.random.default_rng(0)
    x = ms.Tensor(numbers.standard_normal((32, 16)).astype(np.float32))
    labels = numbers.integers(0, 4, 32)
    one_hot = ms.Tensor(np.eye(4, dtype=np.float32)[labels])
    target = ms.Tensor(labels)

    def bridge_loss(weight: Any) -> Any:
        hidden = aten.dropout(aten.leaky_relu(x, 0.1), 0.2, True)
        return aten.cross_entropy_loss(aten.linear(hidden, weight), target)

    def mindspore_loss(weight: Any) -> Any:
        hidden = ops.dropout(ops.relu(x), 0.2)
        return -(ops.log_softmax(ops.matmul(hidden, weight.T)) * one_hot).mean()

    def empty_loss(weight: Any) -> Any:
        return weight

    for name, loss in (("bridge", bridge_loss), ("MindSpore", mindspore_loss), ("none", empty_loss)):
        weight = ms.Parameter(ms.Tensor(numbers.standard_normal((4, 16)).astype(np.float32)), name="weight")
        optimiser = ms.nn.SGD([weight], 0.01)
        differentiated = ms.value_and_grad(loss, None, optimiser.parameters)
        sizes = []
        for step in range(steps + 1):
            value, gradients = differentiated(weight)
            optimiser(gradients)
            if step % (steps // 5) == 0:
                value.asnumpy()
                sizes.append(rss())
        per_step = (sizes[-1] - sizes[1]) * 1024 / (steps * 4 / 5)  # the first fifth warms up
        print(f"{name:10} {steps} steps, RSS in MiB: {sizes}, {per_step:.3f} KiB a step", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="make this one call in this process")
    parser.add_argument("--memory", action="store_true", help="measure memory per call instead")
    parser.add_argument("--training", action="store_true", help="measure memory per training step instead")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.seed, int(options.child[0]), int(options.child[1]), pathlib.Path(options.child[2]))
        return 0
    if options.memory:
        memory()
        return 0
    if options.training:
        training(options.calls)
        return 0
    if options.only is not None:
        caller = Caller(options.seed)
        name, args, kwargs = caller.make(options.only)
        print(name, *args, kwargs, sep="\n", flush=True)
        print(caller.call(name, args, kwargs))
        return 0
    report = run(options.seed, options.calls, progress=True)
    print(*(f"{outcome}: {count}" for outcome, count in report.outcomes.most_common()), sep="\n")
    steps = [f"{call + 1}: {size}" for call, size in report.memory if call % 1000 == 999]
    print(f"RSS in MiB after call: {', '.join(steps)}")
    print(*report.failures, f"{len(report.failures)} failures", sep="\n")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
