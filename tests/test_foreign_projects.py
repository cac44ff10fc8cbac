"""Projects of several files, as they are: one file for each operator, headers, strings, sources for both devices."""

from __future__ import annotations

import os
import pathlib
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest

from bridge import kernels

HERE = pathlib.Path(__file__).parent / "kernels"
PROJECT = [HERE / "project" / name for name in ("scale.cpp", "by_name.cpp", "names.cpp")]
ATTRIBUTES = [HERE / "attributes" / name for name in ("attributes.cpp", "signed.cpp")]
X = np.array([[0.5, -1.25, 3.0], [2.0, 0.125, -4.0]], np.float32)

modes = pytest.mark.parametrize("wrap", [lambda function: function, ms.jit], ids=["PyNative", "graph"])


def declare(schema: str, **arguments: Any) -> kernels.KernelOperator:
    """A kernel of the project, whose file for the GPU has what its host code calls there."""
    cuda = [*PROJECT, HERE / "project" / "by_name.cu"]
    return kernels.extension(PROJECT, schema, results="x", cuda=cuda, **arguments)


scale = declare("project::scale(Tensor x, float factor) -> Tensor", gradient="x: project::scale_backward(grad, factor)")
by_name = declare("project::by_name(Tensor x, str name) -> Tensor", gradient="x: project::by_name(grad, name)")
negated = declare("project::negated(Tensor x) -> Tensor")
halved = declare("project::halved(Tensor x) -> Tensor")
signed = kernels.aot(ATTRIBUTES, "Signed(Tensor(a!) state, Tensor x, str mode) -> Tensor", results="x")


def equal(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found.asnumpy(), expected)


@modes
def test_functions_in_several_files_and_headers(wrap: Callable[..., Any]) -> None:
    def call(x):
        return by_name(scale(x, 3.0), "Double"), halved(negated(x))

    def total(x):
        return by_name(scale(x, 3.0), "Double").sum()

    first, second = wrap(call)(ms.Tensor(X))
    equal(first, 6 * X)
    equal(second, -X / 2)
    equal(wrap(ms.grad(total))(ms.Tensor(X)), np.full_like(X, 6))


def test_a_function_of_the_sources_for_the_gpu_has_a_sentence() -> None:
    with pytest.raises(RuntimeError, match=r"project::by_name_cuda\(at::Tensor const&, double\) is in none of the"):
        by_name(ms.Tensor(X), "GPU").asnumpy()
    with pytest.raises(RuntimeError, match="by_name: no factor has the name 'triple'"):
        by_name(ms.Tensor(X), "triple").asnumpy()


def test_without_sources_for_the_gpu_the_function_is_missing() -> None:
    alone = kernels.extension(PROJECT, "project::by_name(Tensor x, str name) -> Tensor", results="x")
    with pytest.raises(kernels.KernelError, match=r"by_name_cuda\(.*\) is declared and used, but none of the sources"):
        alone.build()


@modes
def test_strings_across_files_that_read_attributes(wrap: Callable[..., Any]) -> None:
    """The header with MindSpore's class comes by another header."""

    def call(state, x):
        return signed(state, x, "negate")

    state, result = wrap(call)(ms.Tensor(10 * X), ms.Tensor(X))
    equal(state, 11 * X)
    equal(result, -X)


def test_flags_of_one_device(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "which.cpp"
    source.write_text(
        "#include <ATen/TensorOperators.h>\n#include <ATen/core/Tensor.h>\n"
        "at::Tensor which(const at::Tensor &x) { return x * FACTOR; }\n"
    )
    which = kernels.extension(
        source, "which(Tensor x) -> Tensor", results="x", cpp_flags=["-DFACTOR=3"], cuda_flags=["-DFACTOR=5"]
    )
    equal(which(ms.Tensor(X)), 3 * X)
    with pytest.raises(TypeError, match="cpp_flags= is a list of compiler flags"):
        kernels.extension(source, "which(Tensor x) -> Tensor", results="x", cpp_flags="-DFACTOR=3")


REGISTERING = """
#include <ATen/TensorOperators.h>
#include <torch/library.h>

at::Tensor triple(const at::Tensor &x) { return x * 3; }

TORCH_LIBRARY(bridge_reused, m) { m.def("triple", &triple); }
"""

BOTH_FORMS = """
import sys

import mindspore as ms
import numpy as np

from bridge import kernels


def extension():
    return kernels.extension(sys.argv[1], "triple(Tensor x) -> Tensor", results="x")


def registered():
    return kernels.registered("bridge_reused::triple", sys.argv[1])


for name in sys.argv[2:]:
    print(globals()[name]()(ms.Tensor(np.ones(2, np.float32))))
"""


def test_the_second_form_of_the_same_sources_compiles_nothing(tmp_path: pathlib.Path) -> None:
    source, log, compiler = (tmp_path / name for name in ("triple.cpp", "compiler.log", "compiler"))
    source.write_text(REGISTERING)
    real = shutil.which(os.environ.get("CXX", "g++"))
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {real} "$@"\n')
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    environment = os.environ | {"CXX": str(compiler), "BRIDGE_CACHE": str(tmp_path / "cache")}

    def runs(*forms: str) -> int:
        """How often the compiler and the linker run in a process that uses the forms."""
        log.write_text("")
        command = [sys.executable, "-c", BOTH_FORMS, str(source), *forms]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n") == ["[3. 3.]"] * len(forms) + [""], done.stdout
        return len(log.read_text().splitlines())

    assert runs("extension", "registered") == 2  # the source with its shim, and the linker: all for the first form
    assert runs("registered") == 0  # in another process
    assert runs("registered", "extension") == 0
