"""The tests of reads after writes in a graph, on a GPU."""

import pytest

from test_writes_in_graphs import *  # noqa: F403

del test_mindspores_cells_see_a_step  # noqa: F821  # MindSpore's matrix product there is one of TF32
pytestmark = pytest.mark.gpu
