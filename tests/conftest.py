"""What all tests share."""
from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


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
