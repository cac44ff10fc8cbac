"""The tests of modules that run a part again or keep something, on a GPU."""

import pytest

from test_programs_checkpoints import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs")]
