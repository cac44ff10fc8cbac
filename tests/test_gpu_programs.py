"""The tests of bridge.cell on a GPU, where MindSpore's stream and memory are CUDA's."""

import pytest

from test_programs import *  # noqa: F403

del test_a_saved_tensor_that_was_written_to_is_no_gradient  # noqa: F821  # MindSpore's copy_ does not run on a GPU
pytestmark = pytest.mark.gpu
