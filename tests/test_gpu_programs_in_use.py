"""The tests of modules in use on a GPU."""

import pytest

from test_programs_in_use import *  # noqa: F403

pytestmark = pytest.mark.gpu
