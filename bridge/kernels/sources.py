"""What is compiled for kernels of the same sources."""
from __future__ import annotations

import ctypes
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from bridge import devices
from bridge.kernels import library, shims
from bridge.kernels.errors import KernelError
from bridge.kernels.shims import Function

Sources = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def paths(sources: Sources) -> tuple[pathlib.Path, ...]:
    """The files, absolute. Raises FileNotFoundError for one that is not there."""
    listed = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    found = tuple(pathlib.Path(path).absolute() for path in listed)
    for path in found:
        if not path.is_file():
            raise FileNotFoundError(f"a kernel's source is not there: {path}")
        if path.suffix not in (".cpp", ".cc", ".cxx", ".cu", ".so"):
            raise ValueError(f"a kernel's source is a .cpp, .cc, .cxx or .cu file, or a library built before: {path}")
    return found


def flag_list(flags: Sequence[str]) -> tuple[str, ...]:
    """Compiler flags. Raises TypeError for one string, whose characters would be the flags."""
    if isinstance(flags, str):
        raise TypeError(f"flags= is a list of compiler flags, such as [{flags!r}], not a string")
    return tuple(flags)


# MindSpore's name of a device -> PyTorch's.
DEVICES = {"CPU": "CPU", "GPU": "CUDA"}


class KernelLibrary:
    """What is compiled for kernels of the same sources, for each device when it is first needed.

    Kernels are added until then, so that one build serves all that are declared beforehand.

    Args:
        form: "aot" or "extension".
        sources: for each device, "CPU" and "CUDA", its sources, or one library that was built before.
        flags: for every compiler call.
    """

    def __init__(self, form: str, sources: dict[str, tuple[pathlib.Path, ...]], flags: tuple[str, ...]) -> None:
        self.form = form
        self.functions: list[Function] = []
        self.sources = sources
        self.flags = flags
        self._built: dict[str, pathlib.Path] = {}
        self._closed = False

    @property
    def name(self) -> str:
        """The name of the sources, which messages and files have."""
        return (self.sources["CPU"] or self.sources["CUDA"])[0].stem

    def accepts(self, functions: Sequence[Function]) -> bool:
        """Whether the functions can be added: nothing is built yet, and none is there in another form."""
        known = {f.declaration.name: f for f in self.functions}
        return not self._closed and all(known.get(f.declaration.name, f) == f for f in functions)

    def add(self, functions: Sequence[Function]) -> None:
        self.functions += [function for function in functions if function not in self.functions]

    @property
    def devices(self) -> list[str]:
        """MindSpore's names of the devices that there are sources for."""
        return [name for name, device in DEVICES.items() if self.sources[device]]

    def path(self, target: str) -> pathlib.Path:
        """The library for one of MindSpore's devices, loaded. Raises KernelError if it cannot be built."""
        self._closed = True
        device = DEVICES[target]
        built = self._built.get(device)
        if built is None:
            if target == "GPU":
                devices.has_cuda_set()  # what the library needs
            built = self._built[device] = self._build(device)
        return built

    def _build(self, device: str) -> pathlib.Path:
        sources = self.sources[device]
        if not sources:
            raise KernelError(f"{self.name} has no sources for the {device}: give them in "
                              f"{'sources' if device == 'CPU' else 'cuda'}=")
        built = sources[0] if sources[0].suffix == ".so" else library.build_library(self.recipe(device))
        opened = library.load(built, self.name)
        for function in self.functions:
            self._check(opened, function, built)
        return built

    def _check(self, opened: Any, function: Function, path: pathlib.Path) -> None:
        try:
            entry = opened[f"{shims.symbol(function)}Schema"]
        except AttributeError:
            raise KernelError(f"{path} has no kernel {function.declaration.name}: build it with "
                              "bridge.build.ATenExtension") from None
        entry.restype = ctypes.c_char_p
        text = entry().decode()
        if text != function.declaration.text:
            raise KernelError(f"{path} was built for another schema: {text}, not {function.declaration.text}")

    def recipe(self, device: str) -> library.Recipe:
        """How to compile the variant."""
        text, included = self.shim(device)
        others = tuple(path for path in self.sources[device] if path not in included)
        suffix = ".cu" if device == "CUDA" and (not included or included[0].suffix == ".cu") else ".cpp"
        return library.Recipe(self.name, others, text, suffix, included, device == "CUDA", self.flags)

    def shim(self, device: str) -> tuple[str, tuple[pathlib.Path, ...]]:
        """The text of the shim, and the source that it includes."""
        if self.form == "aot":
            return shims.aot(self.functions, device), ()
        included = self._source_of_functions(device)
        return shims.extension(self.functions, included, device), (included,)

    def _source_of_functions(self, device: str) -> pathlib.Path:
        """The source that names all functions, a `.cpp` file rather than a `.cu` file."""
        sources = sorted(self.sources[device], key=lambda path: path.suffix == ".cu")
        patterns = {f.declaration.function: rf"\b{re.escape(f.declaration.name)}\s*\(" for f in self.functions}
        texts = {path: path.read_text(errors="replace") for path in sources}
        for path, text in texts.items():
            if all(re.search(pattern, text) for pattern in patterns.values()):
                return path
        names = ", ".join(path.name for path in sources)
        for function, pattern in patterns.items():
            if not any(re.search(pattern, text) for text in texts.values()):
                raise KernelError(f"{self.name}: {names} has no function {function!r}")
        raise KernelError(f"{self.name}: no file among {names} has all of {', '.join(patterns)}; declare them in one")


_libraries: dict[Any, KernelLibrary] = {}


def shared_library(
    form: str, variants: dict[str, tuple[pathlib.Path, ...]], flags: tuple[str, ...], functions: list[Function]
) -> KernelLibrary:
    """The library for functions of these sources: the one that is still open, or a new one."""
    key = (form, *variants.values(), flags)
    found = _libraries.get(key)
    if found is None or not found.accepts(functions):
        found = _libraries[key] = KernelLibrary(form, variants, flags)
    found.add(functions)
    return found
