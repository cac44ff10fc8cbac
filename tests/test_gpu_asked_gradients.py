"""The gradients that are asked for, on a GPU, where MindSpore records on a thread of its own."""

import pytest

from test_asked_gradients import *  # noqa: F403

pytestmark = pytest.mark.gpu
