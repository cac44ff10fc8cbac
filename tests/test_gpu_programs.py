"""The tests of bridge.cell on a GPU, where MindSpore's stream and memory are CUDA's."""

import pytest

from test_programs import *  # noqa: F403

pytestmark = pytest.mark.gpu
