"""The tests of packed sequences on a GPU."""

import pytest

from test_programs_packed import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs", "graph_mode")]
