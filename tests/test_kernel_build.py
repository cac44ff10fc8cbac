"""Building kernels: what is kept, what makes it anew, several processes, and libraries built before."""

from __future__ import annotations

import os
import pathlib
import shutil
import stat
import subprocess
import sys
from typing import Any

import mindspore as ms
import numpy as np
import pytest

import bridge
from bridge import kernels
from bridge.kernels import sources

EXAMPLES = pathlib.Path(__file__).parent.parent / "scripts" / "examples"
CUSTOM_ADD = EXAMPLES / "custom_add"
SIGMOID = EXAMPLES / "sigmoid"
X = np.arange(6, dtype=np.float32).reshape(2, 3)

SOURCE = """
#include "factor.h"

extern "C" int Scale(int nparam, void **params, int *ndims, int64_t **shapes, const char **, void *, void *) {
  int64_t n = 1;
  for (int i = 0; i < ndims[0]; ++i) n *= shapes[0][i];
  for (int64_t i = 0; i < n; ++i) {
    static_cast<float *>(params[1])[i] = FACTOR * static_cast<const float *>(params[0])[i];
  }
  return 0;
}
"""

PROGRAM = """
import sys

import mindspore as ms
import numpy as np

from bridge import kernels
from bridge.kernels import sources

scale = kernels.aot(sys.argv[1], "Scale(Tensor x) -> Tensor", results="x")
print(scale(ms.Tensor(np.ones(3, np.float32))))
"""


class Project:
    """A source with a header, a cache of its own, and a compiler that counts its runs."""

    def __init__(self, folder: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.source = folder / "scale.cpp"
        self.header = folder / "factor.h"
        self.log = folder / "compiler.log"
        self.source.write_text(SOURCE)
        self.set_factor(2)
        self.log.touch()
        compiler = folder / "compiler"
        compiler.write_text(f'#!/bin/sh\necho "$@" >> {self.log}\nexec {os.environ.get("CXX", "g++")} "$@"\n')
        compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
        self.patch = patch
        patch.setenv("CXX", str(compiler))
        patch.setenv("BRIDGE_CACHE", str(folder / "cache"))

    def set_factor(self, factor: int) -> None:
        self.header.write_text(f"#include <cstdint>\nconstexpr float FACTOR = {factor};\n")

    def runs(self) -> int:
        """How often the compiler has run since this was last asked."""
        count = len(self.log.read_text().splitlines())
        self.log.write_text("")
        return count

    def forget(self) -> None:
        """Look at what is kept as a new process does."""
        self.patch.setattr(sources, "_shared", {})

    def kernel(self, **arguments: Any) -> kernels.KernelOperator:
        return kernels.aot(self.source, "Scale(Tensor x) -> Tensor", results="x", **arguments)


@pytest.fixture
def project(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, monkeypatch)


def scaled(kernel: kernels.KernelOperator) -> float:
    result = kernel(ms.Tensor(X)).asnumpy()
    factor = float(result[0, 1])
    np.testing.assert_array_equal(result, factor * X)
    return factor


def test_an_unchanged_kernel_is_not_compiled_again(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    assert scaled(project.kernel()) == 2
    assert project.runs() == 3  # the shim, the source, the linker
    assert "bridge: building scale for the CPU from scale.cpp" in capfd.readouterr().err
    assert scaled(project.kernel()) == 2
    project.forget()
    assert scaled(project.kernel()) == 2
    assert project.runs() == 0
    assert "bridge:" not in capfd.readouterr().err


def test_what_goes_into_a_kernel_makes_it_anew(project: Project) -> None:
    assert scaled(project.kernel()) == 2
    project.set_factor(3)
    assert scaled(project.kernel()) == 3
    project.source.write_text(SOURCE.replace("FACTOR *", "2 * FACTOR *"))
    assert scaled(project.kernel()) == 6
    project.runs()
    assert scaled(project.kernel(flags=["-O0"])) == 6
    assert project.runs() == 3
    project.set_factor(3)  # written again, and the same
    assert scaled(project.kernel()) == 6
    assert project.runs() == 0
    project.header.unlink()
    with pytest.raises(kernels.KernelError, match=r"factor\.h: No such file"):
        project.kernel().build()


def test_what_a_build_leaves_behind_when_it_is_killed_does_no_harm(project: Project) -> None:
    scaled(project.kernel())
    (kept,) = pathlib.Path(os.environ["BRIDGE_CACHE"]).glob("scale-*")
    (kept / "building").mkdir()
    (kept / "manifest.json").write_text('[{"path":')
    project.forget()
    assert scaled(project.kernel()) == 2
    assert not (kept / "building").exists()
    next(kept.glob("*.so")).unlink()
    project.forget()
    assert scaled(project.kernel()) == 2
    assert len(list(kept.glob("*.so"))) == 1


def test_two_processes_build_once(project: Project) -> None:
    command = [sys.executable, "-c", PROGRAM, str(project.source)]
    processes = [
        subprocess.Popen(command, cwd=project.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300) for process in processes]
    for process, (out, err) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, err
        assert out.strip() == "[2. 2. 2.]"
    assert project.runs() == 3
    assert sum(err.count("bridge: building scale") for _, err in outputs) == 1


SETUP = """
from setuptools import setup

from bridge.build import ATenExtension, BuildKernels

setup(
    name="my-package",
    version="1",
    packages=["my_package"],
    ext_modules=[
        ATenExtension("my_package.my_kernels", ["sigmoid.cpp"],
                      {"sigmoid(Tensor x) -> Tensor": "x: sigmoid_backward(grad, result)"}),
    ],
    cmdclass={"build_ext": BuildKernels},
)
"""

PACKAGE = """
import pathlib
import shutil

from bridge import kernels
from bridge.kernels import sources

sigmoid = kernels.extension(pathlib.Path(__file__).parent / "my_kernels.so", "sigmoid(Tensor x) -> Tensor", results="x",
                            gradient="x: sigmoid_backward(grad, result)")
"""

USER = """
import mindspore as ms
import numpy as np

from my_package import sigmoid

x = ms.Tensor(np.zeros(2, np.float32))
print(sigmoid(x), ms.grad(lambda x: sigmoid(x).sum())(x))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A package with kernels, built as a wheel and installed."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "sigmoid.cpp").write_text((SIGMOID / "sigmoid.cpp").read_text())
    (folder / "setup.py").write_text(SETUP)
    (folder / "my_package").mkdir()
    (folder / "my_package" / "__init__.py").write_text(PACKAGE)
    command = [sys.executable, "setup.py", "-q", "bdist_wheel"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "dist").iterdir()
    assert "linux_x86_64" in wheel.name
    target = folder / "installed"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(target)], check=True)
    return target


def test_a_wheel_needs_no_compiler(installed: pathlib.Path) -> None:
    assert (installed / "my_package" / "my_kernels.so").exists()
    path = f"{installed}{os.pathsep}{os.environ['PYTHONPATH']}"
    environment = os.environ | {"PYTHONPATH": path, "CXX": "no-compiler"}
    command = [sys.executable, "-c", USER]
    done = subprocess.run(
        command, cwd=installed, capture_output=True, text=True, check=False, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0.5 0.5] [0.25 0.25]"


def test_a_wheel_holds_no_path(installed: pathlib.Path) -> None:
    library = installed / "my_package" / "my_kernels.so"
    read = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True)
    assert "RPATH" not in read.stdout and "RUNPATH" not in read.stdout


def test_a_library_that_does_not_fit_is_refused(installed: pathlib.Path) -> None:
    library = installed / "my_package" / "my_kernels.so"
    with pytest.raises(kernels.KernelError, match=r"was built for another schema: sigmoid\(Tensor x\) -> Tensor, not"):
        kernels.extension(library, "sigmoid(Tensor x, int n) -> Tensor", results="x").build()
    with pytest.raises(kernels.KernelError, match=r"has no kernel tanh: build it with bridge\.build\.ATenExtension"):
        kernels.extension(library, "tanh(Tensor x) -> Tensor", results="x").build()


def test_the_cuda_shim_of_an_extension(tmp_path: pathlib.Path) -> None:
    sigmoid = kernels.extension(
        SIGMOID / "sigmoid.cpp", "sigmoid(Tensor x) -> Tensor", results="x", cuda=SIGMOID / "sigmoid.cu"
    )
    path = sigmoid.write_shim(tmp_path, "CUDA")
    assert path.name == "sigmoid_shim.cu"
    assert "MS_EXT_CUDA_SHIM(sigmoid)" in path.read_text()
    assert f'#include "{SIGMOID / "sigmoid.cu"}"' in path.read_text()
    assert "MS_EXT_CPU_SHIM(sigmoid)" in sigmoid.write_shim(tmp_path).read_text()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs CUDA's compiler")
def test_an_aot_kernel_compiles_for_cuda(tmp_path: pathlib.Path) -> None:
    add = kernels.aot(
        CUSTOM_ADD / "custom_add.cpp",
        "CustomAdd(Tensor a, Tensor b) -> Tensor",
        results="a",
        initial="zeros",
        cuda=CUSTOM_ADD / "custom_add.cu",
    )
    shim = add.write_shim(tmp_path, "CUDA")
    assert "ms_ext::kCuda, 2, 0, ms_ext::kZeros" in shim.read_text()
    headers = pathlib.Path(bridge.__file__).parent / "include"
    for source in (shim, CUSTOM_ADD / "custom_add.cu"):
        command = ["nvcc", "-std=c++20", "-Xcompiler", "-fPIC", f"-I{headers}", "-c", str(source),
                   "-o", str(tmp_path / "kernel.o")]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
