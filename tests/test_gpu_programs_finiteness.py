"""The tests of questions whether numbers are finite, on a GPU."""

import pytest

from test_programs_finiteness import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs", "graph_mode")]
