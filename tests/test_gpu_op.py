"""Any ATen operator by name, on GPU, against PyTorch there: bit for bit, in PyNative and graph mode.

Usage:

    python tests/test_gpu_op.py grid_sampler_2d
    pytest tests --device GPU
"""

from __future__ import annotations

import sys

import pytest

from test_cpu_op import MODES, TESTED, run

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", TESTED)
def test_bits_are_pytorchs(op: str, mode: str) -> None:
    from conformance import by_name  # pytest finds it; the command below starts it

    by_name.assert_bits_are_pytorchs(op, mode, "GPU")


if __name__ == "__main__":
    sys.exit(run("GPU"))
