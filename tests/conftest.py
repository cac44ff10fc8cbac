"""The tests of one device run in a process of their own: MindSpore keeps the device that it has.

Usage:

    pytest tests                  # on CPU
    pytest tests --device GPU     # those about the GPU, which are marked so
"""

from __future__ import annotations

import gc
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import pytest
import torch

import bridge
from bridge.op import devices
from shared import MODES


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-golden", action="store_true", help="write tests/golden/ anew; see test_golden.py")
    parser.addoption("--device", choices=("CPU", "GPU"), default="CPU")


def pytest_configure(config: pytest.Config) -> None:
    # The generator is not installed. Last, so that an installed bridge is found before the sources here.
    sys.path.append(str(pathlib.Path(__file__).parent.parent))
    device = config.getoption("--device")
    if device == "GPU" and not devices.has_cuda_set():
        raise pytest.UsageError("the bridge was built without the CUDA operators")
    ms.set_device(device)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    on_gpu = config.getoption("--device") == "GPU"
    others = [item for item in items if (item.get_closest_marker("gpu") is not None) != on_gpu]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """What makes a function run in a mode."""
    return MODES[request.param]


@pytest.fixture(autouse=True)
def mode_again() -> Iterator[None]:
    """A test leaves MindSpore in the mode that it found."""
    before = ms.get_context("mode")
    yield
    if ms.get_context("mode") != before:
        ms.set_context(mode=before)


@pytest.fixture(scope="module", autouse=True)
def few_objects() -> None:
    """MindSpore collects garbage before each compilation: it need not look at all that was imported, for half a second
    each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def graph_mode() -> None:
    """MindSpore's graph mode, for the whole test."""
    ms.set_context(mode=ms.GRAPH_MODE)


@pytest.fixture(params=["PyNative", "graph"])
def context_mode(request: pytest.FixtureRequest) -> str:
    """The name of the mode that MindSpore is in: one after the other."""
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    return request.param


@pytest.fixture
def deterministic() -> Iterator[None]:
    """On a GPU rows are added without atomics, which lead to other bits each time."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def own_programs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test captures its own programs: it finds none that others kept."""
    monkeypatch.setenv("BRIDGE_CACHE", str(tmp_path))


@pytest.fixture(scope="session", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What processes that tests start see: this bridge, installed or in place, and kernels built anew in each run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(pathlib.Path(bridge.__file__).parent.parent), prepend=os.pathsep)
        patch.setenv("BRIDGE_CACHE", str(tmp_path_factory.mktemp("kernels")))
        yield
