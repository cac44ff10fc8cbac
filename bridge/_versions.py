"""Refuses, at import, the version combinations that would fail later and less clearly."""
from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version


def _release(package: str) -> tuple[int, int] | None:
    try:
        major, minor = version(package).split(".")[:2]
    except PackageNotFoundError:
        return None
    return int(major), int(minor)


def problem() -> str | None:
    """One sentence that says what to install, or None if everything fits."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"bridge runs on Linux x86-64, not on {sys.platform} {platform.machine()}."
    if not (3, 10) <= sys.version_info[:2] <= (3, 12):
        return f"bridge needs Python 3.10 to 3.12, not {platform.python_version()}: install one of these."
    for package, lowest, highest in (("mindspore", (2, 8), (2, 10)), ("torch", (2, 11), (2, 13))):
        found = _release(package)
        newest = f"'{package}=={highest[0]}.{highest[1]}.0'"
        supported = f"{package} {lowest[0]}.{lowest[1]} to {highest[0]}.{highest[1]}"
        if found is None:
            return f"bridge needs {supported}: pip install {newest}."
        if not lowest <= found <= highest:
            return f"bridge needs {supported}, not {version(package)}: pip install {newest}."
    numpy = _release("numpy")
    if numpy is None or numpy >= (2, 0):
        found_text = "none" if numpy is None else version("numpy")
        return f"bridge needs NumPy below 2, because MindSpore does, and found {found_text}: pip install 'numpy<2'."
    return None


def check() -> None:
    """Raise ImportError if these versions do not work together."""
    sentence = problem()
    if sentence:
        raise ImportError(sentence)
