"""The tests of bridge.cell on a GPU, where MindSpore's stream and memory are CUDA's."""

from test_programs import *  # noqa: F403
