"""Any ATen operator by name, on CPU, against PyTorch: bit for bit, in PyNative and graph mode.

Usage:

    python tests/test_cpu_op.py grid_sampler_2d
    python tests/test_cpu_op.py add.Tensor layer_norm 'upsample_*'
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

MODES = ("pynative", "graph")
# One of each kind: composite, several results, a list of tensors, optional tensors, reduction, random, factory, view.
TESTED = (
    *("leaky_relu", "grid_sampler_2d", "topk", "cat", "native_layer_norm", "conv2d", "logsumexp", "bernoulli", "full"),
    "diagonal_copy",
)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", TESTED)
def test_bits_are_pytorchs(op: str, mode: str) -> None:
    from conformance import by_name  # pytest finds it; the command below starts it

    by_name.assert_bits_are_pytorchs(op, mode, "CPU")


def run(device: str) -> int:
    """Compare the operators that the command names."""
    command = [sys.executable, "-m", "conformance.by_name", "--device", device, *sys.argv[1:]]
    return subprocess.call(command, cwd=pathlib.Path(__file__).parent.parent / "scripts")


if __name__ == "__main__":
    sys.exit(run("CPU"))
