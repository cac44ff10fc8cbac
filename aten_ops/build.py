"""Generate, compile, package: what `setup.py build_ext` does.

The CUDA set is built where it can run: with a CUDA build of PyTorch, CUDA's headers and a GPU. Its shims hold no device
code, so the C++ compiler does for it too.

Generating is skipped while the generator, its data, PyTorch and Python stay the same; compiling is ninja's, which knows
every header. Both therefore cost next to nothing when nothing changed, and no library outlives its sources.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor

import ninja
import torch

from .versions import BUILT_WITH

ROOT = pathlib.Path(__file__).parent.parent
MS_EXT = ROOT / "ms_ext"
TORCH = pathlib.Path(torch.__file__).parent
CUDA = pathlib.Path("/usr/local/cuda")  # where its toolkit is unless CUDA_HOME says otherwise
# One of each of its packages that the sources need: pip has them apart.
CUDA_HEADERS = ["cuda_runtime.h", "crt/host_config.h", "nv/target", "cublas_v2.h", "cusparse.h", "cusolverDn.h"]
# Found without importing it, which takes seconds.
MINDSPORE = pathlib.Path(str(importlib.metadata.distribution("mindspore").locate_file("mindspore")))
MINDSPORES_ABI = " -D_GLIBCXX_USE_CXX11_ABI=0"  # the old one, for what talks to MindSpore with C++ strings
# By its file: where g++ falls back to its static one, the process has two, and numbers in error messages end it.
CXX_LIBRARY = "-l:libstdc++.so.6"
MINDSPORE_INCLUDES = (
    "third_party", "third_party/robin_hood_hashing", "third_party/securec/include", "mindspore/include",
    "mindspore/core/include", "mindspore/core/mindrt/include", "mindspore/core/mindrt", "mindspore/ops",
    "mindspore/ops/include", "mindspore/ops/kernel/include", "mindspore/ccsrc", "mindspore/ccsrc/include",
)  # fmt: skip
# g++ looks for garbage from 128 MB on, which takes it a sixth of the time and finds little. It also warns of a write
# past PyTorch's undefined tensor that is none; PyTorch's own build switches that warning off too.
GXX_FLAGS = " --param ggc-min-heapsize=600000 -Wno-stringop-overflow"
# What users' kernels are compiled with: the public headers, and the one of a room that these include.
HEADERS = (*sorted(header.name for header in MS_EXT.glob("*.h")), "mindspore/aot_extra.h")
# What is generated besides C++, by its folder in the package.
GENERATED_FILES = {
    ".": ("operators.json", "holders.json", "aten.pyi"),
    "primitive": ("bprops.py",),
    "torch": ("functions.pyi", "fft.pyi", "linalg.pyi", "special.pyi"),
    "torch/nn": ("functional.pyi",),
    "nn": ("layers.pyi",),
    "optim": ("optimizers.pyi",),
}


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _write_if_changed(path: pathlib.Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def cuda_headers() -> list[pathlib.Path]:
    """The folders of CUDA's headers: the toolkit's, or those that pip installed. Empty if some are missing."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), CUDA]
    folders = [pathlib.Path(home) / "include" for home in homes if home]
    folders += sorted((TORCH.parent / "nvidia").glob("*/include"))
    found = []
    for header in CUDA_HEADERS:
        folder = next((folder for folder in folders if (folder / header).exists()), None)
        if folder is None:
            return []
        found.append(folder)
    return sorted(set(found))


def why_no_cuda() -> str:
    """Why the CUDA set is not built here; empty if it is."""
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} is a CPU build"
    if not cuda_headers():
        return (
            "CUDA's headers are missing: install its toolkit, or set CUDA_HOME (CUDA 13: pip has nvidia-cuda-crt and "
            "nvidia-cuda-cccl)"
        )
    if not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    return ""


def generate(folder: pathlib.Path, with_cuda: bool) -> None:
    """Write shims, table and stubs into `folder`, unless they are there already."""
    sources = sorted(p for p in (ROOT / "aten_ops").iterdir() if p.suffix in (".py", ".yaml"))
    sources.append(ROOT / "bridge" / "torch" / "reasons.py")
    digest = _digest(sys.version, torch.__version__, str(TORCH), str(with_cuda), *(p.read_text() for p in sources))
    stamp = folder / "stamp"
    if stamp.exists() and stamp.read_text() == digest:
        return
    from . import backward, model, shims, stubs, tables  # torchgen takes seconds, so only when there is something to do

    print(f"generating shims for PyTorch {torch.__version__}", flush=True)
    fresh = folder.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    operators = {key: model.operators(key) for key in (("CPU", "CUDA") if with_cuda else ("CPU",))}
    for key, selected in operators.items():
        shims.write(selected, key, fresh)
        backward.write(selected, key, fresh)
    tables.write(operators["CPU"], operators.get("CUDA"), fresh)
    stubs.write(fresh)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if not (fresh / old.name).exists():
            old.unlink()
    for new in fresh.iterdir():
        _write_if_changed(folder / new.name, new.read_text())
    shutil.rmtree(fresh)
    stamp.write_text(digest)


def _toolchain(compiler: str) -> str:
    """What all that is compiled depends on besides its sources."""
    return subprocess.run([compiler, "--version"], check=True, text=True, capture_output=True).stdout


def _room(room: pathlib.Path, objects: pathlib.Path) -> pathlib.Path:
    """A source that includes all sources of a room: their headers take the compiler longer than they do."""
    sources = sorted(room.glob("*.cpp"))
    together = objects / "rooms" / f"{'.'.join(room.relative_to(MS_EXT.parent).parts)}.cpp"
    _write_if_changed(together, "".join(f'#include "{source}"\n' for source in sources))
    return together


def _ninja_file(generated: pathlib.Path, objects: pathlib.Path, compiler: str, with_cuda: bool) -> str:
    gxx_flags = GXX_FLAGS if "Free Software Foundation" in _toolchain(compiler) else ""
    includes = (TORCH / "include", TORCH / "include" / "torch" / "csrc" / "api" / "include")
    lines = [
        f"cxx = {compiler}",
        f"includes = -I{MS_EXT} {' '.join(f'-isystem {folder}' for folder in includes)}",
        "flags = -std=c++20 -O1 -fPIC -Wall",
        "rule compile",
        f"  command = $cxx -x c++ $flags{gxx_flags} $includes -MD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $name",
        "rule link",
        f"  command = $cxx -shared $in -o $out -L{TORCH / 'lib'} -L{objects} $libraries "
        f"-ltorch_cpu -lc10 {CXX_LIBRARY} -Wl,-soname,$soname -Wl,-rpath,'$$ORIGIN'",
        "  description = link $soname",
    ]

    def library(name: str, sources: list[pathlib.Path], libraries: str, needs: str = "", flags: str = "") -> None:
        built = []
        for source in sources:
            target = objects / name.removesuffix(".so") / f"{_name(source)}.o"
            built.append(str(target))
            abi = MINDSPORES_ABI if source == mindspore else ""
            lines.extend((f"build {target}: compile {source} | toolchain", f"  flags = $flags{flags}{abi}"))
            lines.append(f"  name = {_name(source)}")
        lines.append(f"build {objects / name}: link {' '.join(built)}{f' | {objects / needs}' if needs else ''}")
        lines.extend([f"  libraries = {libraries}", f"  soname = {name}"])

    complete = "-Wl,--no-undefined"
    mindspore = _room(MS_EXT / "mindspore", objects)
    written = [*(_room(room, objects) for room in (MS_EXT, MS_EXT / "gradient", MS_EXT / "programs")), mindspore]
    library("libms_ext.so", written, complete)
    python = f" -isystem {sysconfig.get_path('include')}"
    library(
        "libms_ext_python.so",
        [_room(MS_EXT / "programs" / "python", objects)],
        "-lms_ext -ltorch_python",
        "libms_ext.so",
        python,
    )
    lines.extend(_pynative_module(objects))  # the longest to compile come first
    library("libaten_cpu.so", sorted(generated.glob("*.cpp")), f"-lms_ext {complete}", "libms_ext.so")
    if with_cuda:
        flags = "".join([" -DMS_EXT_CUDA", *(f" -isystem {folder}" for folder in cuda_headers())])
        cuda = "-lms_ext -ltorch_cuda -lc10_cuda"  # which bring the CUDA runtime
        sources = [
            *sorted((MS_EXT / "cuda").glob("*.cu")),
            MS_EXT / "gradient" / "gradient.cpp",
            MS_EXT / "programs" / "program_shim.cpp",
            MS_EXT / "programs" / "host_call.cpp",
        ]
        library("libms_ext_cuda.so", sources, cuda, "libms_ext.so", flags)
        shims = sorted(generated.glob("*.cu"))
        library("libaten_cuda.so", shims, f"-lms_ext_cuda {cuda}", "libms_ext_cuda.so", flags)
    return "\n".join(lines) + "\n"


def _name(source: pathlib.Path) -> str:
    """With the room that it has in ms_ext/: files of two rooms may be called the same."""
    return str(source.relative_to(MS_EXT)) if source.is_relative_to(MS_EXT) else source.name


def _pybind_abi() -> str:
    """The C++ ABI in the name under which MindSpore's modules share their types. Its releases differ in it."""
    module = next(MINDSPORE.glob("_c_expression*.so"))
    found = re.search(rb"__pybind11_internals_v\d+\w*?(_cxxabi\d+)__", module.read_bytes())
    if found is None:
        raise SystemExit(f"bridge: {module.name} does not say with which pybind11 it was compiled")
    return found[1].decode()


def _pynative_module(objects: pathlib.Path) -> list[str]:
    """A Python module against MindSpore, by the headers and libraries that its CustomOpBuilder uses."""
    include = MINDSPORE / "include"
    folders = [MINDSPORE, include, *(include / folder for folder in MINDSPORE_INCLUDES), sysconfig.get_path("include")]
    libraries = (
        "common",
        "core",
        "frontend",
        "hardware_abstract",
        "ms_backend",
        "pynative",
        "pyboost",
        "runtime_pipeline",
        "runtime_utils",
    )
    lines = [
        "rule module",
        f"  command = $cxx -shared $in -o $out {CXX_LIBRARY} -L{MINDSPORE / 'lib'} "
        + " ".join(f"-lmindspore_{name}" for name in libraries),
        "  description = link _pynative.so",
    ]
    missing = MS_EXT / "mindspore" / "missing"  # what MindSpore's headers include, and its wheels lack
    python = _room(MS_EXT / "mindspore" / "python", objects)
    built = objects / f"{python.stem}.o"
    lines += [
        f"build {built}: compile {python} | toolchain",
        f"  name = {_name(python)}",
        f"  includes = -I{MS_EXT} -I{missing} {' '.join(f'-isystem {f}' for f in folders)}",
        f"  flags = -std=c++17 -O2 -fPIC -w{MINDSPORES_ABI} -DENABLE_FAST_HASH_TABLE=1 "
        f"-DPYBIND11_BUILD_ABI='\"{_pybind_abi()}\"'",
    ]
    return [*lines, f"build {objects / '_pynative.so'}: module {built}"]


# What needs nothing that is generated, and so is compiled meanwhile.
WRITTEN_BY_HAND = ("libms_ext.so",)


def compile_libraries(
    generated: pathlib.Path, objects: pathlib.Path, jobs: int, with_cuda: bool, only: tuple[str, ...] = ()
) -> list[pathlib.Path]:
    """Bring the libraries, or only those, up to date; ninja prints its progress."""
    compiler = os.environ.get("CXX", "g++")
    _write_if_changed(objects / "toolchain", _toolchain(compiler))
    _write_if_changed(objects / "build.ninja", _ninja_file(generated, objects, compiler, with_cuda))
    command = [str(pathlib.Path(ninja.BIN_DIR) / "ninja"), "-C", str(objects), f"-j{jobs}"]
    command += [str(objects / name) for name in only]
    if subprocess.run(command).returncode:
        raise SystemExit("bridge: compiling the shims failed; the first error is above")
    names = ["libms_ext.so", "libms_ext_python.so", "libaten_cpu.so", "_pynative.so"]
    if with_cuda:
        names += ["libms_ext_cuda.so", "libaten_cuda.so"]
    return [objects / name for name in names]


def build(destination: pathlib.Path, jobs: int = 2) -> None:
    """Put libraries, headers, table and stubs into the package folder `destination`."""
    work = ROOT / "build" / f"py{sys.version_info.major}{sys.version_info.minor}-torch{torch.__version__}"
    generated, objects = work / "generated", work / "objects"
    reason = why_no_cuda()
    if reason:
        print(f"CUDA operators are left out: {reason}", flush=True)
    with ThreadPoolExecutor() as pool:
        generating = pool.submit(generate, generated, not reason)
        compile_libraries(generated, objects, jobs, not reason, WRITTEN_BY_HAND)
        generating.result()
    libraries = compile_libraries(generated, objects, jobs, not reason)
    for folder, files in (
        ("lib", libraries),
        *((folder, [generated / name for name in names]) for folder, names in GENERATED_FILES.items()),
    ):
        for file in files:
            _copy(file, destination / folder / file.name)
    for header in HEADERS:
        _copy(MS_EXT / header, destination / "include" / header)
    _write_if_changed(destination / BUILT_WITH, importlib.metadata.version("torch"))


def _copy(file: pathlib.Path, target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or _version(target) != _version(file):
        fresh = target.with_name(f"{target.name}.new")
        shutil.copy2(file, fresh)
        os.replace(fresh, target)  # a process that has the old one open keeps it


def _version(file: pathlib.Path) -> tuple[int, int]:
    """What a copy shares with its original, and not with that of another PyTorch's build, which may be newer."""
    return file.stat().st_mtime_ns, file.stat().st_size
