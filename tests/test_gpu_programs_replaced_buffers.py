"""The tests of modules that put other tensors in the places of their buffers, on a GPU."""

import pytest

from test_programs_replaced_buffers import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs")]
