"""The tests of repeated steps on a GPU, where PyTorch's optimizers take lists of tensors."""

import pytest

from test_repeated_steps import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs")]
