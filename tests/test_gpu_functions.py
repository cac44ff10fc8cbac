"""The tests of PyTorch's functions on a GPU."""

import pytest

from test_torch_functions import *  # noqa: F403

del test_unknown_shapes_of_python  # noqa: F821  # on a GPU a graph refuses them: test_gpu_programs_unknown.py
pytestmark = pytest.mark.gpu
