"""The tests of bridge.fuse on a GPU, where MindSpore's stream and memory are CUDA's."""

import pytest

from test_fuse import *  # noqa: F403

pytestmark = pytest.mark.gpu
