"""The tests of programs of functions on a GPU, where MindSpore's stream and memory are CUDA's."""

import pytest

from test_programs_functions import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs")]
