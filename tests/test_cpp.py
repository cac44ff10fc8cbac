"""The C++ unit tests of ms_ext, compiled with the address and undefined-behaviour sanitizers."""
from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

import pytest
import torch

ROOT = pathlib.Path(__file__).parent.parent
TORCH = pathlib.Path(torch.__file__).parent
COMPILER = os.environ.get("CXX", "g++")
SOURCES = [
    ROOT / path
    for path in ("tests/cpp/test_ms_ext.cpp", "ms_ext/ms_ext.cpp", "ms_ext/arguments.cpp", "ms_ext/donation.cpp")
]
TESTS = re.findall(r"^      TEST\((\w+)\),$", SOURCES[0].read_text(), re.MULTILINE)

pytestmark = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no C++ compiler {COMPILER}")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the compiled tests print."""
    binary = tmp_path_factory.mktemp("cpp") / "test_ms_ext"
    flags = ["-std=c++20", "-g1", "-O0", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
             "-fno-sanitize-recover=all", f"-I{ROOT / 'ms_ext'}", "-isystem", str(TORCH / "include")]
    libraries = [f"-L{TORCH / 'lib'}", f"-Wl,-rpath,{TORCH / 'lib'}", "-ltorch_cpu", "-lc10"]
    objects = [binary.with_name(f"{source.stem}.o") for source in SOURCES]
    compilers = [
        subprocess.Popen([COMPILER, *flags, "-c", str(source), "-o", str(target)], stderr=subprocess.PIPE, text=True)
        for source, target in zip(SOURCES, objects, strict=True)
    ]
    for compiler in compilers:
        _, errors = compiler.communicate()
        assert compiler.returncode == 0, errors
    link = [COMPILER, "-fsanitize=address,undefined", *map(str, objects), "-o", str(binary), *libraries]
    linked = subprocess.run(link, capture_output=True, text=True, check=False)
    assert linked.returncode == 0, linked.stderr
    # PyTorch's registries live until the process ends, which the leak checker would report as PyTorch's leaks.
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run([str(binary)], capture_output=True, text=True, check=False, env=environment, timeout=120)
    return f"{done.stdout}{done.stderr}\nexit status {done.returncode}"


@pytest.mark.parametrize("name", TESTS)
def test_ms_ext(output: str, name: str) -> None:
    assert f"ok     {name}\n" in output, output


def test_sanitizers_report_nothing(output: str) -> None:
    assert output.endswith("exit status 0"), output
