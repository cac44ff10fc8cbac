"""Any ATen operator by name, on CPU, against PyTorch: bit for bit, in PyNative and graph mode.

    python tests/test_cpu_op.py grid_sampler_2d
    python tests/test_cpu_op.py add.Tensor layer_norm 'upsample_*'
"""

from __future__ import annotations

import sys

import pytest
from per_op import MODES, TESTED, assert_bits_are_pytorchs, main


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", TESTED)
def test_bits_are_pytorchs(op: str, mode: str) -> None:
    assert_bits_are_pytorchs(op, mode, "CPU")


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", "CPU"))
