"""The tests of floats of data on a GPU, from which the host takes them."""

import pytest

from test_programs_data_floats import *  # noqa: F403

pytestmark = pytest.mark.gpu
