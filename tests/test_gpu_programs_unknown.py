"""The tests of programs of unknown sizes on a GPU, where MindSpore's stream and memory are CUDA's."""

import pytest

from test_programs_unknown import *  # noqa: F403

pytestmark = pytest.mark.gpu
