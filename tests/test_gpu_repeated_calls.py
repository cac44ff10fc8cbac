"""The tests of repeated calls of compiled functions on a GPU."""

import pytest

from test_repeated_calls import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs")]
