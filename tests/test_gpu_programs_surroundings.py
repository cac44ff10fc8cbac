"""The tests of what PyTorch has set around a call, on a GPU."""

import pytest

from test_programs_surroundings import *  # noqa: F403

pytestmark = pytest.mark.gpu
