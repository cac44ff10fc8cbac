"""Compiles kernels and keeps the libraries, by the content of everything that went into them.

A library lies in `$BRIDGE_CACHE` (by default ~/.cache/aten-bridge) in a folder whose name is a digest of sources,
flags, compiler and versions. Its manifest lists the headers that the compiler read, with their digests: when one has
changed, the library is built anew, under another name. A file lock keeps processes from building the same one at once.
"""
from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import mindspore
import torch

from bridge.kernels.errors import KernelError
from bridge.primitive import LIBRARIES

_INCLUDE = LIBRARIES.parent / "include"
_TORCH = pathlib.Path(torch.__file__).parent
_TORCH_INCLUDES = (_TORCH / "include", _TORCH / "include" / "torch" / "csrc" / "api" / "include")
# The headers of what the key names by version: the manifest need not list them.
_VERSIONED = (f"{_TORCH}/", f"{pathlib.Path(mindspore.__file__).parent}/", "/usr/include/", "/usr/lib/",
              "/usr/local/cuda", f"{sysconfig.get_paths()['include']}/")  # fmt: skip
# MindSpore's class for attributes takes std::string by value, in the string ABI that MindSpore was compiled with.
_MINDSPORE_STRINGS = ("custom_aot_extra.h", "-D_GLIBCXX_USE_CXX11_ABI=0")
# As torch.utils.cpp_extension has them: c10::Half brings operators of its own.
_NVCC_FLAGS = ("-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
               "-D__CUDA_NO_HALF2_OPERATORS__", "--expt-relaxed-constexpr", "--expt-extended-lambda")  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """What one library is made of.

    Args:
        name: the kernel's name, for messages and file names.
        sources: compiled as they are; `.cu` files by nvcc.
        shim: the text of one more source, if any.
        shim_suffix: ".cpp" or ".cu".
        included: the source that the shim includes.
        cuda: whether it is for the GPU.
        flags: for every compiler call.
        registers: whether it registers operators with PyTorch when it is loaded.
    """

    name: str
    sources: tuple[pathlib.Path, ...]
    shim: str
    shim_suffix: str
    included: tuple[pathlib.Path, ...]
    cuda: bool
    flags: tuple[str, ...]
    registers: bool = False


def folder() -> pathlib.Path:
    """Where the libraries are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("BRIDGE_CACHE") or pathlib.Path(cache) / "aten-bridge")


def _file_name(recipe: Recipe) -> str:
    return re.sub(r"\W", "_", recipe.name)


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(str(len(data)).encode() + b":" + data)
    return digest.hexdigest()


def _file_digest(path: str) -> str:
    try:
        return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    except OSError:
        return "absent"


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


def _key(recipe: Recipe) -> str:
    compilers = [_identity(cxx())] + ([_identity(nvcc()), *_architecture()] if recipe.cuda else [])
    parts: list[str | bytes] = [
        recipe.name, recipe.shim, recipe.shim_suffix, *recipe.flags, "|", *compilers, torch.__version__,
        mindspore.__version__, str(LIBRARIES),
    ]  # fmt: skip
    for source in (*recipe.sources, *recipe.included):
        parts += [str(source), source.read_bytes()]
    return _digest(*parts)


def _compile_command(recipe: Recipe, source: pathlib.Path, target: pathlib.Path) -> list[str]:
    includes = [f"-I{_INCLUDE}"]
    for path in (*_TORCH_INCLUDES, sysconfig.get_paths()["include"]):
        includes += ["-isystem", str(path)]
    common = [
        "-std=c++20", "-O2", f"-DTORCH_EXTENSION_NAME={_file_name(recipe)}", *includes, "-MD", "-MF",
        f"{target}.d", "-c", str(source), "-o", str(target),
    ]  # fmt: skip
    if _MINDSPORE_STRINGS[0] in source.read_text(errors="replace"):
        common.insert(0, _MINDSPORE_STRINGS[1])
    if source.suffix == ".cu":
        return [nvcc(), "-Xcompiler", "-fPIC", *_architecture(), *_NVCC_FLAGS, *common, *recipe.flags]
    if recipe.cuda:
        common += ["-isystem", str(_cuda_home() / "include")]
    return [cxx(), "-fPIC", *common, *recipe.flags]


def _link_command(recipe: Recipe, objects: Sequence[pathlib.Path], target: pathlib.Path) -> list[str]:
    libraries = ["-lms_ext", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"]
    libraries.append("-l:libstdc++.so.6")  # by its file, as in aten_ops/build.py: a static one would be a second one
    if recipe.cuda:
        home = _cuda_home()
        if (LIBRARIES / "libms_ext_cuda.so").exists():
            libraries.append("-lms_ext_cuda")
        libraries += ["-ltorch_cuda", "-lc10_cuda", f"-L{home / 'lib64'}",
                      f"-L{home / 'targets' / 'x86_64-linux' / 'lib'}", "-lcudart_static", "-ldl", "-lrt", "-lpthread"]
    return [
        cxx(), "-shared", *map(str, objects), "-o", str(target), "-Wl,-Bsymbolic-functions", "-Wl,--as-needed",
        f"-L{LIBRARIES}", f"-L{_TORCH / 'lib'}", *libraries, *recipe.flags,
    ]  # fmt: skip


def first_error(output: str) -> str:
    """The line of a compiler's or linker's output that says what is wrong."""
    lines = output.splitlines()
    for pattern in (r": (fatal )?error: |^error: ", r"undefined reference|cannot find|multiple definition"):
        for line in lines:
            if re.search(pattern, line):
                return line.strip()
    return lines[0].strip() if lines else "it said nothing"


def _run(recipe: Recipe, command: list[str], doing: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        output = (done.stderr + done.stdout).strip()
        asserted = re.search(r'static assertion failed(?:: | with ")(.*?)"?$', output, re.MULTILINE)
        first = asserted[1] if asserted else first_error(output)
        raise KernelError(
            f"{recipe.name}: {doing} failed:\n  {first}\n\nEverything that the compiler said:\n{output}\n\n"
            f"The command was:\n{' '.join(command)}"
        )


def _headers(depfile: pathlib.Path) -> Iterator[str]:
    """The headers of a file that -MD wrote, without those that the versions stand for."""
    text = depfile.read_text().replace("\\\n", " ")
    for path in re.split(r"(?<!\\)\s+", text.partition(": ")[2]):
        absolute = os.path.abspath(path.replace("\\ ", " ")) if path else ""
        if absolute and not absolute.startswith(_VERSIONED) and pathlib.Path(absolute).suffix != ".o":
            yield absolute


def compile_into(recipe: Recipe, target: pathlib.Path, jobs: int) -> dict[str, str]:
    """Compile and link to `target`; returns the digest of each header that it depends on.

    Raises KernelError with the first error on top.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as scratch:
        work = pathlib.Path(scratch)
        shim = work / f"shim{recipe.shim_suffix}"
        shim.write_text(recipe.shim)
        sources = [shim, *recipe.sources] if recipe.shim else list(recipe.sources)
        objects = [work / f"{i}.o" for i in range(len(sources))]

        def compile_one(source: pathlib.Path, built: pathlib.Path) -> None:
            named = ", ".join(p.name for p in recipe.included) if source == shim else source.name
            _run(recipe, _compile_command(recipe, source, built), f"compiling {named or 'the shim'}")

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(compile_one, sources, objects))
        library = work / "library.so"
        _run(recipe, _link_command(recipe, objects, library), "linking")
        found = {path for built in objects for path in _headers(built.with_name(f"{built.name}.d"))}
        headers = {path: _file_digest(path) for path in sorted(found) if not path.startswith(scratch)}
        if recipe.registers:
            _try_registration(recipe, library)
        os.replace(library, target)
    return headers


def _try_registration(recipe: Recipe, library: pathlib.Path) -> None:
    """Load the library in another process. What PyTorch refuses to register ends the process that loads it."""
    code = "import ctypes, sys, torch; ctypes.CDLL(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(library)], capture_output=True, text=True, check=False)
    if done.returncode:
        missing = re.search(r"OSError: (.*undefined symbol.*)", done.stderr)
        if missing:
            raise KernelError(f"{recipe.name}: {_load_error(missing[1])}")
        thrown = re.search(r"what\(\): +(.*?)(?:\nException raised from|\n\n|\Z)", done.stderr, re.DOTALL)
        words = thrown[1].strip() if thrown else done.stderr.strip()
        raise KernelError(f"{recipe.name}: PyTorch refuses what the sources register: {words}")


@contextmanager
def _locked(path: pathlib.Path, name: str) -> Iterator[None]:
    with open(path, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another process is building {name}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(what: str) -> None:
    print(f"bridge: {what}", file=sys.stderr, flush=True)


def _kept(place: pathlib.Path) -> pathlib.Path | None:
    """The library of a folder, if all its headers are what they were."""
    try:
        manifest = json.loads((place / "manifest.json").read_text())
    except (OSError, ValueError):
        return None
    if any(_file_digest(path) != digest for path, digest in manifest["headers"].items()):
        return None
    library = place / manifest["library"]
    return library if library.exists() else None


def build_library(recipe: Recipe) -> pathlib.Path:
    """The recipe's library: the one kept, or else a new one.

    Raises KernelError if it cannot be compiled or linked.
    """
    place = folder() / f"{_file_name(recipe)}-{_key(recipe)[:24]}"
    kept = _kept(place)
    if kept is not None:
        return kept
    place.mkdir(parents=True, exist_ok=True)
    with _locked(place / "lock", recipe.name):
        kept = _kept(place)  # by the process that held the lock
        return kept if kept is not None else _build(recipe, place)


def _build(recipe: Recipe, place: pathlib.Path) -> pathlib.Path:
    files = ", ".join(source.name for source in (*recipe.included, *recipe.sources))
    _say(f"building {recipe.name} for {'CUDA' if recipe.cuda else 'the CPU'} from {files}")
    started = time.monotonic()
    for scratch in place.glob("building-*"):  # of a process that was killed
        shutil.rmtree(scratch, ignore_errors=True)
    fresh = place / "fresh.so"
    headers = compile_into(recipe, fresh, int(os.environ.get("BRIDGE_JOBS", 2)))
    final = place / f"{_file_name(recipe)}-{_digest(json.dumps(headers))[:16]}.so"
    os.replace(fresh, final)
    manifest = place / "manifest.new"
    manifest.write_text(json.dumps({"library": final.name, "headers": headers}, indent=1))
    os.replace(manifest, place / "manifest.json")
    for old in place.glob("*.so"):
        if old != final:
            old.unlink()
    _say(f"built {recipe.name} in {time.monotonic() - started:.1f} s")
    return final


_open: dict[str, ctypes.CDLL] = {}


def load(path: pathlib.Path, name: str) -> ctypes.CDLL:
    """Load a library, and hold it open: MindSpore closes it with each kernel.

    Raises KernelError if a symbol is missing.
    """
    opened = _open.get(str(path))
    if opened is None:
        try:
            opened = ctypes.CDLL(str(path))
        except OSError as error:
            raise KernelError(f"{name}: {_load_error(str(error))}") from None
        _open[str(path)] = opened
    return opened


def _load_error(error: str) -> str:
    missing = re.search(r"undefined symbol: (\w+)", error)
    if not missing:
        return f"the library cannot be loaded: {error}"
    symbol = missing[1]
    if shutil.which("c++filt"):
        symbol = subprocess.run(["c++filt", symbol], capture_output=True, text=True, check=False).stdout.strip()
    return f"{symbol} is declared and used, but none of the sources defines it"
