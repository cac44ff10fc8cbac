"""Unsupported combinations of versions are refused at import, each with one sentence that says what to install."""

from __future__ import annotations

import importlib.metadata
import pathlib
import platform
import re
import shutil
import subprocess
import sys

import pytest

from bridge import _versions

ROOT = pathlib.Path(__file__).parent.parent
SUPPORTED = {"mindspore": "2.10.0", "torch": "2.13.0+cpu", "numpy": "1.26.4"}
MINDSPORE = f"mindspore {_versions.span(_versions.FRAMEWORKS['mindspore'])}"
TORCH = f"torch {_versions.span(_versions.FRAMEWORKS['torch'])}"

UNSUPPORTED = [
    pytest.param({"numpy": "2.0.0"}, ["NumPy below 2", "2.0.0", "pip install 'numpy<2'"], id="NumPy 2"),
    pytest.param({"numpy": "2.3.1"}, ["NumPy below 2", "2.3.1", "pip install 'numpy<2'"], id="a later NumPy 2"),
    pytest.param({"numpy": None}, ["NumPy below 2", "none", "pip install 'numpy<2'"], id="no NumPy"),
    pytest.param({"mindspore": "2.7.1"}, [MINDSPORE, "2.7.1", "pip install 'mindspore=="], id="MindSpore too old"),
    pytest.param({"mindspore": "2.11.0"}, [MINDSPORE, "2.11.0", "pip install 'mindspore=="], id="MindSpore too new"),
    pytest.param({"mindspore": None}, [MINDSPORE, "pip install 'mindspore=="], id="no MindSpore"),
    pytest.param({"torch": "2.10.0"}, [TORCH, "2.10.0", "pip install 'torch=="], id="PyTorch too old"),
    pytest.param(
        {"torch": "2.16.0.dev20270101+cu130"}, [TORCH, "2.16.0", "pip install 'torch=="], id="PyTorch too new"
    ),
    pytest.param({"torch": None}, [TORCH, "pip install 'torch=="], id="no PyTorch"),
]


def installed(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None]) -> None:
    def version(package: str) -> str:
        found = (SUPPORTED | versions)[package]
        if found is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return found

    monkeypatch.setattr(_versions, "version", version)


def built_with(monkeypatch: pytest.MonkeyPatch, folder: pathlib.Path, torch: str) -> None:
    monkeypatch.setattr(_versions, "PACKAGE", folder / "bridge")
    marker = folder / "bridge" / _versions.BUILT_WITH
    marker.parent.mkdir(parents=True)
    marker.write_text(torch)


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


@pytest.mark.parametrize(
    "versions",
    [
        {},
        {"mindspore": "2.8.0"},
        {"mindspore": "2.9.1"},
        {"torch": "2.11.0+cu130"},
        {"torch": "2.12.1"},
        {"torch": "2.13.0rc1"},
        {"torch": "2.15.0"},
        {"numpy": "1.21.6"},
    ],
)
def test_supported_versions_are_no_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, versions: dict[str, str | None]
) -> None:
    installed(monkeypatch, versions)
    built_with(monkeypatch, tmp_path, str((SUPPORTED | versions)["torch"]))
    assert _versions.problem() is None
    _versions.check()


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [
        pytest.param("version_info", (3, 9, 18), [f"Python {_versions.span(_versions.PYTHON)}"], id="Python too old"),
        pytest.param("version_info", (3, 13, 0), [f"Python {_versions.span(_versions.PYTHON)}"], id="Python too new"),
        pytest.param("platform", "darwin", ["Linux x86-64", "darwin"], id="another system"),
    ],
)
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
        [sys.executable, "-c", IMPORT_WITH_NUMPY_2],
        capture_output=True,
        text=True,
        check=False,
        cwd=package,
        timeout=60,
    )
    assert done.returncode == 1
    assert "ImportError: bridge needs NumPy below 2" in done.stderr
    assert "numpy.core.multiarray" not in done.stderr  # MindSpore's own, unclear words


def test_sources_that_are_not_built_say_what_to_run(tmp_path: pathlib.Path) -> None:
    shutil.copytree(ROOT / "bridge", tmp_path / "bridge", ignore=shutil.ignore_patterns("lib", "bprops.py", "*.json"))
    shutil.copy(ROOT / "setup.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", "from bridge import aten"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 1
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith(f"ImportError: bridge is not built in {tmp_path / 'bridge'}: ")
    assert f"in {tmp_path}, run `bash scripts/run_cpu.sh`" in sentence and sentence.endswith(".")


def test_a_build_for_another_pytorch_says_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    installed(monkeypatch, {"torch": "2.15.0"})
    built_with(monkeypatch, tmp_path, "2.13.0")
    words = r"^bridge was built for torch 2\.13\.0, and this is 2\.15\.0: install it again\.$"
    with pytest.raises(ImportError, match=words):
        _versions.check()
    (tmp_path / "setup.py").touch()
    with pytest.raises(ImportError, match=r"run `bash scripts/run_cpu\.sh`, or `python setup\.py build_ext --inplace`"):
        _versions.check()


def test_the_readme_and_the_tools_have_the_same_ranges() -> None:
    readme = (ROOT / "README.md").read_text()
    rows = dict(re.findall(r"^\| (MindSpore|PyTorch|Python) \| ([^|]+) \|", readme, re.MULTILINE))
    assert rows == {
        "MindSpore": _versions.span(_versions.FRAMEWORKS["mindspore"]),
        "PyTorch": _versions.span(_versions.FRAMEWORKS["torch"]),
        "Python": _versions.span(_versions.PYTHON),
    }
    major, minor = _versions.PYTHON[0]
    project = (ROOT / "pyproject.toml").read_text()
    assert f'target-version = "py{major}{minor}"' in project and f'python_version = "{major}.{minor}"' in project


def test_pip_gets_the_same_ranges(tmp_path: pathlib.Path) -> None:
    program = f"""
import sys; sys.path.insert(0, "{ROOT}")
from aten_ops import backend
print("to build:", *backend.get_requires_for_build_wheel(), sep="\\n")
print("in", backend.prepare_metadata_for_build_wheel("{tmp_path}"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert set(_versions.requirements()) <= set(lines)
    metadata = (tmp_path / lines[-1].removeprefix("in ") / "METADATA").read_text().splitlines()

    def parts(requirement: str) -> tuple[str, set[str]]:
        name, limits = re.fullmatch(r"([\w-]+) ?(.*)", requirement).groups()  # type: ignore[union-attr]
        return name, set(limits.split(","))

    wanted = [parts(line.removeprefix("Requires-Dist: ")) for line in metadata if line.startswith("Requires-Dist: ")]
    assert all(parts(requirement) in wanted for requirement in _versions.requirements())
    limits = next(line for line in metadata if line.startswith("Requires-Python: ")).removeprefix("Requires-Python: ")
    assert set(limits.split(",")) == set(_versions.specifier(_versions.PYTHON).split(","))
