"""The tests of what own code finds by name on a GPU."""

import pytest

from test_named_constants import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs")]
