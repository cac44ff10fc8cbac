"""The compilers: which ones, and what they are told."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import shutil
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bridge.kernels.errors import KernelError
from bridge.op.devices import LIBRARIES
from bridge.op.table import Variant

INCLUDE = LIBRARIES.parent / "include"
TORCH = pathlib.Path(torch.__file__).parent
_TORCH_INCLUDES = (TORCH / "include", TORCH / "include" / "torch" / "csrc" / "api" / "include")
_MINDSPORES_STRINGS = "-D_GLIBCXX_USE_CXX11_ABI=0"
# As torch.utils.cpp_extension has them: c10::Half brings operators of its own.
_NVCC_FLAGS = ("-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
               "-D__CUDA_NO_HALF2_OPERATORS__", "--expt-relaxed-constexpr", "--expt-extended-lambda")  # fmt: skip


@dataclass(frozen=True)
class Flags:
    """The user's flags for one device's library: what g++ gets, which links too, and what nvcc gets."""

    host: tuple[str, ...] = ()
    nvcc: tuple[str, ...] = ()


def flag_list(flags: Sequence[str], name: str = "flags") -> tuple[str, ...]:
    """Compiler flags. Raises TypeError for one string, whose characters would be the flags."""
    if isinstance(flags, str):
        raise TypeError(f"{name}= is a list of compiler flags, such as [{flags!r}], not a string")
    return tuple(flags)


def flags_by_device(flags: Sequence[str], cpp_flags: Sequence[str], cuda_flags: Sequence[str]) -> dict[Variant, Flags]:
    """The flags of the libraries for "CPU" and "CUDA".

    Of `cuda_flags`, g++ gets those for the preprocessor, because nvcc's others mean nothing to it.
    """
    common = flag_list(flags)
    for_cuda = flag_list(cuda_flags, "cuda_flags")
    preprocessor = tuple(flag for flag in for_cuda if re.match(r"-[DUI]", flag))
    return {
        "CPU": Flags(common + flag_list(cpp_flags, "cpp_flags")),
        "CUDA": Flags(common + preprocessor, tuple(map(_for_nvcc, common + for_cuda))),
    }


def _for_nvcc(flag: str) -> str:
    return "-Xcompiler=-fopenmp" if flag == "-fopenmp" else flag


def _find(program: str, hint: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise KernelError(f"bridge needs {program!r} to compile kernels, and it is not there: {hint}")
    return found


def cxx() -> str:
    """The C++ compiler."""
    return _find(os.environ.get("CXX", "g++"), "install g++, or set CXX")


def nvcc() -> str:
    """The CUDA compiler: $CUDA_HOME's if that has one, else the first on the path."""
    home = os.environ.get("CUDA_HOME", "")
    inside = pathlib.Path(home) / "bin" / "nvcc"
    return str(inside) if home and inside.exists() else _find("nvcc", "install CUDA's compiler, or set CUDA_HOME")


def _cuda_home() -> pathlib.Path:
    return pathlib.Path(nvcc()).resolve().parent.parent


@functools.cache
def _identity(compiler: str) -> str:
    """Tells one compiler from another, without running it."""
    path = pathlib.Path(compiler).resolve()
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


@functools.cache
def _architecture() -> tuple[str, ...]:
    """nvcc's flags for the GPU at hand; without one, for the oldest that nvcc knows by default."""
    if not torch.cuda.is_available():
        return ()
    major, minor = torch.cuda.get_device_capability()
    return (f"-gencode=arch=compute_{major}{minor},code=sm_{major}{minor}",)


def compilers(cuda: bool) -> list[str]:
    """What tells these compilers from others, and from themselves for another GPU."""
    return [_identity(cxx())] + ([_identity(nvcc()), *_architecture()] if cuda else [])


def _through_ccache(command: list[str]) -> list[str]:
    """The command, by way of ccache where that is installed."""
    ccache = shutil.which("ccache")
    return command if ccache is None or "ccache" in pathlib.Path(command[0]).resolve().name else [ccache, *command]


def compile_command(
    source: pathlib.Path,
    target: pathlib.Path,
    *,
    module: str,
    cuda: bool,
    flags: Flags,
    mindspores_strings: bool = False,
    first: pathlib.Path | None = None,
) -> list[str]:
    """What compiles a source, and lists the files that it includes in `target`.d.

    Args:
        source, target: the file, and the object to make of it.
        module: TORCH_EXTENSION_NAME.
        cuda: whether it is for the GPU.
        flags: the user's.
        mindspores_strings: whether std::string is MindSpore's rather than PyTorch's.
        first: a header to include before everything else.
    """
    common = ["-std=c++20", "-O2", f"-DTORCH_EXTENSION_NAME={module}", f"-I{INCLUDE}"]
    for path in (*_TORCH_INCLUDES, sysconfig.get_paths()["include"]):
        common += ["-isystem", str(path)]
    if mindspores_strings:
        common.append(_MINDSPORES_STRINGS)
    if first is not None:
        common += ["-include", str(first)]
    common += ["-MD", "-MF", f"{target}.d", "-c", str(source), "-o", str(target)]
    given = flags.nvcc if source.suffix == ".cu" else flags.host
    if not any(flag.startswith("-W") and not flag.startswith("-Wl,") for flag in given):
        common.append("-w")  # the first error shall not drown in warnings that nobody asked for
    if source.suffix == ".cu":
        return _through_ccache([nvcc(), "-Xcompiler", "-fPIC", *_architecture(), *_NVCC_FLAGS, *common, *given])
    if cuda:
        common += ["-isystem", str(_cuda_home() / "include")]
    return _through_ccache([cxx(), "-fPIC", *common, *given])


def link_command(
    objects: Sequence[pathlib.Path], target: pathlib.Path, *, cuda: bool, flags: Flags, base: pathlib.Path | None
) -> list[str]:
    """What links a library. The linker warns of symbols that nobody defines, by their mangled names.

    Args:
        objects, target: what it is made of, and the file.
        cuda, flags: see `compile_command`.
        base: a library beside it that defines more.
    """
    libraries = ["-lms_ext", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"]
    libraries.append("-l:libstdc++.so.6")  # by its file, as in aten_ops/build.py: a static one would be a second one
    if cuda:
        home = _cuda_home()
        if (LIBRARIES / "libms_ext_cuda.so").exists():
            libraries.append("-lms_ext_cuda")
        libraries += [
            "-ltorch_cuda",
            "-lc10_cuda",
            f"-L{home / 'lib64'}",
            f"-L{home / 'targets' / 'x86_64-linux' / 'lib'}",
            "-lcudart_static",
            "-ldl",
            "-lrt",
            "-lpthread",
        ]
    onto = [] if base is None else [str(base), "-Wl,-rpath,$ORIGIN"]
    return [
        cxx(), "-shared", *map(str, objects), "-o", str(target), f"-Wl,-soname,{target.name}",
        "-Wl,-Bsymbolic-functions", "-Wl,--as-needed", "-Wl,-z,defs,--warn-unresolved-symbols,--no-demangle", *onto,
        f"-L{LIBRARIES}", f"-L{TORCH / 'lib'}", *libraries, *flags.host,
    ]  # fmt: skip
