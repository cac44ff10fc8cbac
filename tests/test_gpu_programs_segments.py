"""The tests of backward in several programs on a GPU."""

import pytest

from test_programs_segments import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs", "graph_mode")]
