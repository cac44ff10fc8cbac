"""The releases that the bridge works with, and a refusal, at import, of what would fail later and less clearly.

This is the one place that holds them. setup.py and pip read them here (`requirements`), and so does env.sh, which runs
this file: it prints what scripts/run_cpu.sh installs.
"""

from __future__ import annotations

import pathlib
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

Release = tuple[int, int]

PYTHON: tuple[Release, Release] = ((3, 10), (3, 12))  # the first and the last that work, as below
FRAMEWORKS: dict[str, tuple[Release, Release]] = {"mindspore": ((2, 8), (2, 10)), "torch": ((2, 11), (2, 15))}
NUMPY = "numpy<2"
INSTALLED = ["mindspore==2.10.0", "torch==2.13.0", NUMPY]  # by scripts/run_cpu.sh, and tested with each change

PACKAGE = pathlib.Path(__file__).parent
BUILT_WITH = "lib/built_with.txt"  # which the build writes last: the PyTorch that the libraries are for


def span(releases: tuple[Release, Release]) -> str:
    """A range of releases in words: "2.8 to 2.10"."""
    return " to ".join(".".join(map(str, release)) for release in releases)


def specifier(releases: tuple[Release, Release]) -> str:
    """A range of releases as pip has it: ">=2.8,<2.11"."""
    (first_major, first_minor), (major, minor) = releases
    return f">={first_major}.{first_minor},<{major}.{minor + 1}"


def requirements() -> list[str]:
    """What the package depends on, for pip."""
    return [*(package + specifier(releases) for package, releases in FRAMEWORKS.items()), NUMPY]


def _release(package: str) -> Release | None:
    try:
        major, minor = version(package).split(".")[:2]
    except PackageNotFoundError:
        return None
    return int(major), int(minor)


def problem() -> str | None:
    """One sentence that says what to install, or None if everything fits."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"bridge runs on Linux x86-64, not on {sys.platform} {platform.machine()}."
    if not PYTHON[0] <= sys.version_info[:2] <= PYTHON[1]:
        return f"bridge needs Python {span(PYTHON)}, not {platform.python_version()}: install one of these."
    for package, (lowest, highest) in FRAMEWORKS.items():
        found = _release(package)
        newest = f"'{package}=={highest[0]}.{highest[1]}.0'"
        supported = f"{package} {span((lowest, highest))}"
        if found is None:
            return f"bridge needs {supported}: pip install {newest}."
        if not lowest <= found <= highest:
            return f"bridge needs {supported}, not {version(package)}: pip install {newest}."
    numpy = _release("numpy")
    if numpy is None or numpy >= (2, 0):
        found_text = "none" if numpy is None else version("numpy")
        return f"bridge needs NumPy below 2, because MindSpore does, and found {found_text}: pip install '{NUMPY}'."
    return None


def build_problem() -> str | None:
    """One sentence that says how to build what is missing beside this file, or None if it is there and fits."""
    root, built_with = PACKAGE.parent, PACKAGE / BUILT_WITH
    how = "install it again"
    if (root / "setup.py").exists():
        how = (
            f"in {root}, run `bash scripts/run_cpu.sh`, or `python setup.py build_ext --inplace` in an environment "
            "of your own; a bridge that is installed elsewhere is found from any other folder"
        )
    if not built_with.exists():
        return f"bridge is not built in {PACKAGE}: {how}."
    if built_with.read_text() != version("torch"):
        return f"bridge was built for torch {built_with.read_text()}, and this is {version('torch')}: {how}."
    return None


def check() -> None:
    """Raise ImportError if these versions do not work together, or nothing is built for them."""
    sentence = problem() or build_problem()
    if sentence:
        raise ImportError(sentence)


if __name__ == "__main__":
    print(*INSTALLED, sep="\n")
