"""The tests of bridge.value_and_grad on a GPU."""

import pytest

from test_value_and_grad import *  # noqa: F403

pytestmark = pytest.mark.gpu
