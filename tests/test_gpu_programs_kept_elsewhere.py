"""The tests of what a capture leaves elsewhere, on a GPU."""

import pytest

from test_programs_kept_elsewhere import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs", "graph_mode")]
