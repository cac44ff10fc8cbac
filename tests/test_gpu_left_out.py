"""The tests of parameters that a loss does not depend on, on a GPU."""

import pytest

from test_left_out import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs")]
