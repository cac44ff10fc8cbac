"""Generate, compile, package: what `setup.py build_ext` does.

Generating is skipped while the generator, its data, PyTorch and Python stay the same; compiling is ninja's, which knows
every header. Both therefore cost next to nothing when nothing changed, and no library outlives its sources.
"""
from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import ninja
import torch

ROOT = pathlib.Path(__file__).parent.parent
TORCH = pathlib.Path(torch.__file__).parent
GENERATED_FILES = ("operators.json", "holders.json", "aten.pyi", "bprops.py")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _write_if_changed(path: pathlib.Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def generate(folder: pathlib.Path) -> None:
    """Write shims, table and stubs into `folder`, unless they are there already."""
    sources = sorted(p for p in (ROOT / "aten_ops").iterdir() if p.suffix in (".py", ".yaml"))
    digest = _digest(sys.version, torch.__version__, str(TORCH), *(p.read_text() for p in sources))
    stamp = folder / "stamp"
    if stamp.exists() and stamp.read_text() == digest:
        return
    from . import backward, model, shims, tables  # torchgen takes seconds, so only when there is something to do

    print(f"generating shims for PyTorch {torch.__version__}", flush=True)
    fresh = folder.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    operators = model.operators("CPU")
    shims.write(operators, "CPU", fresh)
    backward.write(operators, "CPU", fresh)
    tables.write(operators, None, fresh)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if not (fresh / old.name).exists():
            old.unlink()
    for new in fresh.iterdir():
        _write_if_changed(folder / new.name, new.read_text())
    shutil.rmtree(fresh)
    stamp.write_text(digest)


def _ninja_file(generated: pathlib.Path, objects: pathlib.Path, compiler: str) -> str:
    printed = subprocess.run([compiler, "--version"], check=True, text=True, capture_output=True).stdout
    version = printed.splitlines()[0]
    includes = (TORCH / "include", TORCH / "include" / "torch" / "csrc" / "api" / "include")
    lines = [
        f"# {version}, PyTorch {torch.__version__}",
        f"cxx = {compiler}",
        f"includes = -I{ROOT / 'ms_ext'} {' '.join(f'-isystem {folder}' for folder in includes)}",
        "flags = -std=c++20 -O1 -fPIC -Wall",
        "rule compile",
        "  command = $cxx $flags $includes -MD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $in",
        "rule link",
        f"  command = $cxx -shared $in -o $out -L{TORCH / 'lib'} -L{objects} $libraries -ltorch_cpu -lc10 "
        "-Wl,-soname,$soname -Wl,-rpath,'$$ORIGIN' -Wl,--no-undefined",
        "  description = link $out",
    ]

    def library(name: str, sources: list[pathlib.Path], libraries: str = "", needs: str = "") -> None:
        built = []
        for source in sources:
            target = objects / f"{source.stem}.o"
            built.append(str(target))
            lines.append(f"build {target}: compile {source}")
            if source.name == "aot_extra.cpp":  # MindSpore's string ABI, see the file
                lines.append("  flags = $flags -D_GLIBCXX_USE_CXX11_ABI=0")
        lines.append(f"build {objects / name}: link {' '.join(built)}{f' | {objects / needs}' if needs else ''}")
        lines.extend([f"  libraries = {libraries}", f"  soname = {name}"])

    library("libms_ext.so", sorted((ROOT / "ms_ext").glob("*.cpp")))
    library("libaten_cpu.so", sorted(generated.glob("*.cpp")), "-lms_ext", "libms_ext.so")
    return "\n".join(lines) + "\n"


def compile_libraries(generated: pathlib.Path, objects: pathlib.Path, jobs: int) -> list[pathlib.Path]:
    """Bring the libraries up to date; ninja prints its progress."""
    compiler = os.environ.get("CXX", "g++")
    _write_if_changed(objects / "build.ninja", _ninja_file(generated, objects, compiler))
    command = [str(pathlib.Path(ninja.BIN_DIR) / "ninja"), "-C", str(objects), f"-j{jobs}"]
    if subprocess.run(command).returncode:
        raise SystemExit("bridge: compiling the shims failed; the first error is above")
    return sorted(objects.glob("*.so"))


def build(destination: pathlib.Path, jobs: int = 2) -> None:
    """Put libraries, headers, table and stubs into the package folder `destination`."""
    work = ROOT / "build" / f"py{sys.version_info.major}{sys.version_info.minor}-torch{torch.__version__}"
    generated, objects = work / "generated", work / "objects"
    generate(generated)
    libraries = compile_libraries(generated, objects, jobs)
    for folder, files in (
        ("lib", libraries),
        ("include", sorted((ROOT / "ms_ext").glob("*.h"))),
        (".", [generated / name for name in GENERATED_FILES]),
    ):
        (destination / folder).mkdir(parents=True, exist_ok=True)
        for file in files:
            target = destination / folder / file.name
            if not target.exists() or target.stat().st_mtime < file.stat().st_mtime:
                shutil.copy2(file, target)
