"""The tests of one device run in a process of their own: MindSpore keeps the device that it has.

    pytest tests                  # on CPU
    pytest tests --device GPU     # those about the GPU, whose files have it in their names
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import mindspore as ms
import pytest

from bridge import devices


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=("CPU", "GPU"), default="CPU")


def pytest_configure(config: pytest.Config) -> None:
    device = config.getoption("--device")
    if device == "GPU" and not devices.has_cuda_set():
        raise pytest.UsageError("the bridge was built without the CUDA operators")
    ms.set_device(device)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    on_gpu = config.getoption("--device") == "GPU"
    others = [item for item in items if ("gpu" in item.path.stem) != on_gpu]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels are built anew in each run of the tests, and shared within it."""
    before = os.environ.get("BRIDGE_CACHE")
    os.environ["BRIDGE_CACHE"] = str(tmp_path_factory.mktemp("kernels"))
    yield
    if before is None:
        del os.environ["BRIDGE_CACHE"]
    else:
        os.environ["BRIDGE_CACHE"] = before
