"""The tests of programs in graph mode on a GPU, where MindSpore's stream and memory are CUDA's."""

import pytest

from test_programs_graph import *  # noqa: F403

pytestmark = pytest.mark.gpu
