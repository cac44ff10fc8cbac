"""The rooms of ms_ext/: only one knows MindSpore, and public headers include only what is installed with them."""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterator

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from aten_ops import build

TORCH = pathlib.Path(torch.__file__).parent / "include"
SOURCES = sorted(path for path in build.MS_EXT.rglob("*") if path.suffix in (".h", ".cpp", ".cu"))
# Of the C and C++ libraries, the compiler and CUDA: none of these is MindSpore's.
OTHERS = re.compile(r"[a-z_]+|Python\.h|(dlfcn|malloc|unistd|immintrin|pmmintrin|xmmintrin|cuda_runtime)\.h")


def name(path: pathlib.Path) -> str:
    return str(path.relative_to(build.MS_EXT))


def included(path: pathlib.Path) -> Iterator[str]:
    """What a source includes of others than itself."""
    yield from re.findall(r'^#include ["<](.+)[">]$', path.read_text(), re.MULTILINE)


def is_known(header: str) -> bool:
    found = (build.MS_EXT / header).exists() or (TORCH / header).exists()
    return found or OTHERS.fullmatch(header) is not None


@pytest.mark.parametrize("path", [path for path in SOURCES if not name(path).startswith("mindspore/")], ids=name)
def test_only_one_room_includes_headers_of_mindspore(path: pathlib.Path) -> None:
    assert [header for header in included(path) if not is_known(header)] == []


def test_a_header_of_mindspore_would_be_found() -> None:
    kernel = build.MS_EXT / "mindspore" / "python" / "runner.h"
    assert any(not is_known(header) for header in included(kernel))


@pytest.mark.parametrize("header", build.HEADERS)
def test_a_public_header_includes_public_headers(header: str) -> None:
    private = {name(path) for path in SOURCES if path.suffix == ".h"} - set(build.HEADERS)
    assert private.isdisjoint(included(build.MS_EXT / header))


def test_the_readme_has_a_line_for_each_file() -> None:
    text = (build.MS_EXT / "README.md").read_text()
    named = set(re.findall(r"`([\w/]+)(?:\.\w+)?`", text))  # a header is named with its source
    assert [name(path) for path in SOURCES if path.stem not in named and "missing/" not in name(path)] == []
