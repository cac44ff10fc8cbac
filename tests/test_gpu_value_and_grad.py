"""The tests of bridge.value_and_grad, and of modules in use, on a GPU."""

import pytest

from test_programs_in_use import *  # noqa: F403
from test_value_and_grad import *  # noqa: F403

pytestmark = pytest.mark.gpu
