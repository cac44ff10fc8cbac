"""The tests of bridge.value_and_grad on a GPU."""

import pytest

from test_value_and_grad import *  # noqa: F403

del test_sizes_may_be_unknown_in_a_graph  # noqa: F821  # a program on a GPU needs known shapes
pytestmark = pytest.mark.gpu
