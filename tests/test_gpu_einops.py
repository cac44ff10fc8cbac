"""The tests of einops on a GPU."""

import pytest

from test_einops import *  # noqa: F403

pytestmark = pytest.mark.gpu
