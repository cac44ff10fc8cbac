"""The tests of constants that a call replaces, on a GPU."""

import pytest

from test_programs_replaced_constants import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs", "graph_mode")]
