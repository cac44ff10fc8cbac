"""The tests of copies of what a mask marks on a GPU."""

import pytest

from test_programs_marked_copies import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("deterministic")]
