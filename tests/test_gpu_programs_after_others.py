"""The tests of what calls leave in attributes, on a GPU."""

import pytest

from test_programs_after_others import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs")]
