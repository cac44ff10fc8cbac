"""The tests of parts that integers of data choose on a GPU, from which the host takes them."""

import pytest

from test_programs_selected import *  # noqa: F403

pytestmark = pytest.mark.gpu
