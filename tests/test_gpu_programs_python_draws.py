"""The tests of numbers that Python draws on a GPU, to which they are given."""

import pytest

from test_programs_python_draws import *  # noqa: F403

pytestmark = pytest.mark.gpu
