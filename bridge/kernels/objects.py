"""Compiles single sources. An object serves every library that has the same source with the same flags."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass

import mindspore
import torch

from bridge.kernels import cache, compiler_errors, toolchain
from bridge.kernels.toolchain import Flags

# The headers of what the key names by version: the manifest need not list them.
_VERSIONED = (f"{toolchain.TORCH}/", f"{pathlib.Path(mindspore.__file__).parent}/", "/usr/include/", "/usr/lib/",
              "/usr/local/cuda", f"{sysconfig.get_paths()['include']}/")  # fmt: skip
# Instead of registering operators again that the process has from another library of the same sources.
_REGISTERS_NOTHING = toolchain.INCLUDE / "registers_nothing.h"


@dataclass(frozen=True)
class Unit:
    """What one compiler call compiles.

    Args:
        source: a file of the user's, compiled as it is, or included by the shims.
        shims: the text of generated C++; empty if the file is compiled as it is.
    """

    source: pathlib.Path | None
    shims: str = ""

    @property
    def name(self) -> str:
        return "the shims" if self.source is None else self.source.name


@dataclass(frozen=True)
class Settings:
    """What the objects of one library have in common.

    Args:
        name: the library's, for messages.
        module: TORCH_EXTENSION_NAME.
        cuda: whether it is for the GPU.
        flags: the user's.
        mindspores_strings: whether std::string is MindSpore's rather than PyTorch's.
        registers_nothing: whether sources that shims include do not register their operators.
    """

    name: str
    module: str
    cuda: bool
    flags: Flags
    mindspores_strings: bool = False
    registers_nothing: bool = False


def versions(cuda: bool) -> list[str]:
    """What everything that is compiled depends on, besides its sources."""
    return [*toolchain.compilers(cuda), torch.__version__, mindspore.__version__, str(toolchain.INCLUDE)]


def suffix(unit: Unit, cuda: bool) -> str:
    """That of the file to compile: shims that include no C++ source are nvcc's if they are for the GPU."""
    if not unit.shims and unit.source is not None:
        return unit.source.suffix
    return ".cu" if cuda and (unit.source is None or unit.source.suffix == ".cu") else ".cpp"


def compiled(unit: Unit, settings: Settings) -> cache.Kept:
    """The object of a unit: the one kept, or else a new one. Raises KernelError with the first error on top."""
    place = cache.folder() / "objects" / f"{pathlib.Path(unit.name).stem.replace(' ', '_')}-{_key(unit, settings)}"
    kept = cache.current(place)
    if kept:
        return kept[0]
    with cache.locked(place, unit.name) as scratch:
        kept = cache.current(place)  # by the process that held the lock
        return kept[0] if kept else _compile(unit, settings, place, scratch)


def _key(unit: Unit, settings: Settings) -> str:
    first = _first(unit, settings)
    parts: list[str | bytes] = [
        *versions(settings.cuda), settings.module, *settings.flags.host, "|", *settings.flags.nvcc,
        str(settings.mindspores_strings), str(first), unit.shims,
    ]  # fmt: skip
    if unit.source is not None:
        parts += [str(unit.source), unit.source.read_bytes()]
    return cache.digest(*parts)


def _first(unit: Unit, settings: Settings) -> pathlib.Path | None:
    return _REGISTERS_NOTHING if settings.registers_nothing and unit.shims and unit.source is not None else None


def _compile(unit: Unit, settings: Settings, place: pathlib.Path, scratch: pathlib.Path) -> cache.Kept:
    source, target = unit.source, scratch / "made.o"
    if unit.shims or source is None:
        source = scratch / f"shims{suffix(unit, settings.cuda)}"
        source.write_text(unit.shims)
    command = toolchain.compile_command(
        source, target, module=settings.module, cuda=settings.cuda, flags=settings.flags,
        mindspores_strings=settings.mindspores_strings, first=_first(unit, settings),
    )  # fmt: skip
    run(settings.name, command, f"compiling {unit.name}")
    found = {path for path in _headers(pathlib.Path(f"{target}.d")) if not path.startswith(str(scratch))}
    headers = {path: cache.file_digest(path) for path in sorted(found)}
    final = place / f"{cache.digest(*headers, *headers.values())}.o"
    os.replace(target, final)
    made = cache.Kept(final, headers)
    cache.keep(place, made)
    return made


def run(name: str, command: list[str], doing: str) -> str:
    """Run a compiler; returns what it said. Raises KernelError if it fails."""
    environment = os.environ | {"LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)
    output = (done.stderr + done.stdout).strip()
    if done.returncode:
        raise compiler_errors.failed(name, doing, output, command)
    return output


def _headers(depfile: pathlib.Path) -> Iterator[str]:
    """The headers of a file that -MD wrote, without those that the versions stand for."""
    text = depfile.read_text().replace("\\\n", " ")
    for path in re.split(r"(?<!\\)\s+", text.partition(": ")[2]):
        absolute = os.path.abspath(path.replace("\\ ", " ")) if path else ""
        if absolute and not absolute.startswith(_VERSIONED):
            yield absolute
