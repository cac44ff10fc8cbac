"""The tests of backward in two parts on a GPU."""

import pytest

from test_programs_parts import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs", "graph_mode")]
