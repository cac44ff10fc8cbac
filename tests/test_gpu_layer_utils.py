"""The tests of torch.nn.utils on layers on a GPU, where MindSpore's stream and memory are CUDA's."""

import pytest

from test_layer_utils import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_programs")]
