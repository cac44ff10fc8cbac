"""The tests of sizes that data decides on a GPU, where counting them makes the host wait."""

import pytest

from test_programs_data_sizes import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("deterministic")]
