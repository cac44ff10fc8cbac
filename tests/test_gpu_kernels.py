"""The kernels of test_both_devices.py on a GPU."""

import pytest

from test_both_devices import *  # noqa: F403

pytestmark = pytest.mark.gpu
