"""The tests of objects in graphs on a GPU."""

import pytest

from test_objects_in_graphs import *  # noqa: F403

pytestmark = pytest.mark.gpu
