"""Unsupported combinations of versions are refused at import, each with one sentence that says what to install."""
from __future__ import annotations

import importlib.metadata
import pathlib
import platform
import subprocess
import sys

import pytest

from bridge import _versions

SUPPORTED = {"mindspore": "2.10.0", "torch": "2.13.0+cpu", "numpy": "1.26.4"}

UNSUPPORTED = [
    pytest.param({"numpy": "2.0.0"}, ["NumPy below 2", "2.0.0", "pip install 'numpy<2'"], id="NumPy 2"),
    pytest.param({"numpy": "2.3.1"}, ["NumPy below 2", "2.3.1", "pip install 'numpy<2'"], id="a later NumPy 2"),
    pytest.param({"numpy": None}, ["NumPy below 2", "none", "pip install 'numpy<2'"], id="no NumPy"),
    pytest.param({"mindspore": "2.7.1"}, ["mindspore 2.8 to 2.10", "2.7.1", "pip install 'mindspore=="],
                 id="MindSpore too old"),
    pytest.param({"mindspore": "2.11.0"}, ["mindspore 2.8 to 2.10", "2.11.0", "pip install 'mindspore=="],
                 id="MindSpore too new"),
    pytest.param({"mindspore": None}, ["mindspore 2.8 to 2.10", "pip install 'mindspore=="], id="no MindSpore"),
    pytest.param({"torch": "2.10.0"}, ["torch 2.11 to 2.13", "2.10.0", "pip install 'torch=="], id="PyTorch too old"),
    pytest.param({"torch": "2.14.0.dev20260101+cu130"}, ["torch 2.11 to 2.13", "2.14.0", "pip install 'torch=="],
                 id="PyTorch too new"),
    pytest.param({"torch": None}, ["torch 2.11 to 2.13", "pip install 'torch=="], id="no PyTorch"),
]


def installed(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None]) -> None:
    def version(package: str) -> str:
        found = (SUPPORTED | versions)[package]
        if found is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return found

    monkeypatch.setattr(_versions, "version", version)


@pytest.mark.parametrize(("versions", "words"), UNSUPPORTED)
def test_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None], words: list[str]
) -> None:
    installed(monkeypatch, versions)
    sentence = _versions.problem()
    assert sentence is not None
    for word in words:
        assert word in sentence
    assert "\n" not in sentence and sentence.startswith("bridge ") and sentence.endswith(".")
    with pytest.raises(ImportError) as caught:
        _versions.check()
    assert str(caught.value) == sentence


@pytest.mark.parametrize("versions", [{}, {"mindspore": "2.8.0"}, {"mindspore": "2.9.1"}, {"torch": "2.11.0+cu130"},
                                      {"torch": "2.12.1"}, {"torch": "2.13.0rc1"}, {"numpy": "1.21.6"}])
def test_supported_versions_are_no_problem(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None]) -> None:
    installed(monkeypatch, versions)
    assert _versions.problem() is None
    _versions.check()


@pytest.mark.parametrize(("attribute", "value", "words"), [
    pytest.param("version_info", (3, 9, 18), ["Python 3.10 to 3.12"], id="Python too old"),
    pytest.param("version_info", (3, 13, 0), ["Python 3.10 to 3.12"], id="Python too new"),
    pytest.param("platform", "darwin", ["Linux x86-64", "darwin"], id="another system"),
])
def test_other_platforms_are_refused(
    monkeypatch: pytest.MonkeyPatch, attribute: str, value: object, words: list[str]
) -> None:
    installed(monkeypatch, {})
    monkeypatch.setattr(sys, attribute, value)
    sentence = _versions.problem()
    assert sentence is not None and all(word in sentence for word in words)


def test_another_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, {})
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert "aarch64" in (_versions.problem() or "")


IMPORT_WITH_NUMPY_2 = """
import importlib.metadata
real = importlib.metadata.version
importlib.metadata.version = lambda package: "2.1.0" if package == "numpy" else real(package)
import bridge
"""


def test_import_fails_before_mindspore_does() -> None:
    package = pathlib.Path(_versions.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_WITH_NUMPY_2], capture_output=True, text=True, check=False, cwd=package,
        timeout=60,
    )
    assert done.returncode == 1
    assert "ImportError: bridge needs NumPy below 2" in done.stderr
    assert "numpy.core.multiarray" not in done.stderr  # MindSpore's own, unclear words
