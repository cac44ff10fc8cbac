"""The tests of modules that are changed after a graph was compiled, on a GPU, where that may still run."""

import pytest

from test_programs_changed_modules import *  # noqa: F403

pytestmark = pytest.mark.gpu
