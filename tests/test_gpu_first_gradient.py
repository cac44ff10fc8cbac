"""The tests of the ones by which a gradient begins, on a GPU."""

import pytest

from test_first_gradient import *  # noqa: F403

pytestmark = pytest.mark.gpu
