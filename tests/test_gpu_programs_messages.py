"""The tests of questions that decide about messages only, on a GPU."""

import pytest

from test_programs_messages import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs", "graph_mode")]
