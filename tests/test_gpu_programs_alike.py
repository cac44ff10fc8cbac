"""The tests of programs that no capture made on a GPU."""

from collections.abc import Iterator

import pytest
import torch

from test_programs_alike import *  # noqa: F403

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    """Rows are added without atomics, which lead to other bits each time."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
