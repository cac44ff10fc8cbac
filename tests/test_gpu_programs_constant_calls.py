"""The tests of calls that are made once on a GPU."""

import pytest

from test_programs_constant_calls import *  # noqa: F403

pytestmark = [pytest.mark.gpu]
