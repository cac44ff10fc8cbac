"""The tests of modules that write to their parameters and buffers, on a GPU."""

import pytest

from test_programs_written_weights import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs")]
