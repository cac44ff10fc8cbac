"""The tests of programs that no capture made on a GPU."""

import pytest

from test_programs_alike import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("deterministic")]
