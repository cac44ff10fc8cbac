"""The tests of MindSpore's own things in fused programs on a GPU."""

import pytest

from test_fuse_mindspores import *  # noqa: F403

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("context_mode")]  # type: ignore[assignment]  # of both
