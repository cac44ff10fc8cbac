"""What the generator writes for six operators, so that a review sees what a change of it does to shims.

    pytest tests/test_golden.py --renew-golden   # writes tests/golden/ anew, after an intended change

The call in a shim follows from the functions of the installed PyTorch, which differ between its releases. The golden is
of the release that scripts/run_cpu.sh installs, and is compared with no other.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable

import pytest
import torch

from aten_ops import backward, model, shims
from bridge import _versions

GOLDEN = pathlib.Path(__file__).parent / "golden"
RELEASE = next(pin.partition("==")[2] for pin in _versions.INSTALLED if pin.startswith("torch=="))

Write = Callable[[model.Operator, str], str]
# File: overload, device, and what writes it.
SHIMS: dict[str, tuple[str, str, Write]] = {
    "add.cpp": ("add.Tensor", "CPU", shims.shim),
    "topk.cpp": ("topk", "CPU", shims.shim),  # several results
    "cat.cpp": ("cat", "CPU", shims.shim),  # a list of tensors
    "conv2d_backward.cpp": ("convolution", "CPU", backward.shim),  # conv2d is a composite: it comes to this
    "bernoulli.cpp": ("bernoulli.p", "CPU", shims.shim),  # a draw
    "softmax.cu": ("_softmax", "CUDA", shims.shim),  # a kernel past PyTorch's function
}


@functools.cache
def operators(device: str) -> dict[str, model.Operator]:
    return {operator.name: operator for operator in model.operators(device)}


@pytest.mark.skipif(
    torch.__version__.partition("+")[0] != RELEASE, reason=f"the golden is of PyTorch {RELEASE}, as run_cpu.sh installs"
)
@pytest.mark.parametrize("file", SHIMS)
def test_shims_are_as_they_were(file: str, request: pytest.FixtureRequest) -> None:
    name, device, write = SHIMS[file]
    written = write(operators(device)[name], device)
    if request.config.getoption("--renew-golden"):
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / file).write_text(written)
    assert written == (GOLDEN / file).read_text()


def test_every_golden_is_compared() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == SHIMS.keys()
