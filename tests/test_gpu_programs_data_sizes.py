"""The tests of sizes that data decides on a GPU, where counting them makes the host wait."""

from collections.abc import Iterator

import pytest
import torch

from test_programs_data_sizes import *  # noqa: F403

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    """Rows are added without atomics, which lead to other bits each time."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
