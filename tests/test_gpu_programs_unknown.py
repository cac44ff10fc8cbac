"""The tests of programs of unknown sizes on a GPU."""

import pytest

from test_programs_unknown import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs", "graph_mode")]
