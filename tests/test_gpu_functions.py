"""The tests of PyTorch's functions on a GPU."""

import pytest

from test_torch_functions import *  # noqa: F403

pytestmark = pytest.mark.gpu
