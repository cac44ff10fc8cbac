"""Programs on a GPU: the modules of test_programs_graph.py, with PyTorch on the GPU as the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

import test_programs_graph as on_cpu

graph_mode = on_cpu.graph_mode
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("make, inputs", on_cpu.MODULES)
def test_steps_are_pytorchs(make: Callable[[], nn.Module], inputs: Any, train: bool) -> None:
    on_cpu.check_steps(make, inputs, train, "cuda")
