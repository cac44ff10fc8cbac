"""The files that a user gives, and what is compiled of them for one device."""

from __future__ import annotations

import ctypes
import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from bridge.kernels import cache, finding, libraries, loading, shims
from bridge.kernels.errors import KernelError
from bridge.kernels.libraries import Recipe
from bridge.kernels.objects import Settings, Unit
from bridge.kernels.shims import Function
from bridge.kernels.toolchain import Flags
from bridge.op import devices
from bridge.op.table import Device, Variant

Sources = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# MindSpore's name of a device -> PyTorch's.
DEVICES: dict[Device, Variant] = {"CPU": "CPU", "GPU": "CUDA"}


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


class DeviceLibrary:
    """What is compiled of the same sources for one device, whatever forms the kernels have.

    The kernels that are declared before the first is needed are compiled together. Those that come later get a
    library of their own, with shims alone, that uses the first one: its sources are in the process only once.

    Args:
        device: "CPU" or "CUDA".
        sources: the files, or one library that was built before.
        flags: the user's.
        elsewhere: whether there are sources for the GPU too, which have what these may lack.
    """

    def __init__(self, device: Variant, sources: tuple[pathlib.Path, ...], flags: Flags, elsewhere: bool) -> None:
        self.device = device
        self.sources = sources
        self.flags = flags
        self.elsewhere = elsewhere
        self.declared: list[Function] = []
        self._paths: dict[Function, pathlib.Path] = {}
        self._base: cache.Kept | None = None

    @property
    def name(self) -> str:
        """What messages and files call it."""
        return self.sources[0].stem

    @property
    def is_prebuilt(self) -> bool:
        return self.sources[0].suffix == ".so"

    def is_current(self) -> bool:
        """Whether nothing has changed that what is loaded was made of."""
        return self._base is None or self._base.is_current()

    def declare(self, functions: Iterable[Function]) -> None:
        """Say what needs shims."""
        self.declared += [function for function in functions if function not in self.declared]

    def path(self, functions: Sequence[Function]) -> pathlib.Path:
        """The library that has the first function's shim, loaded; the others are those of its gradient.

        Raises KernelError if it cannot be built.
        """
        first = functions[0]
        if first not in self._paths and self._base is not None and self._base_has(functions):
            self._paths |= dict.fromkeys(functions, self._base.path)
        if first not in self._paths:
            if self.is_prebuilt:
                self._check(loading.load(self.sources[0], self.name), first)
                self._paths[first] = self.sources[0]
            else:
                self._build(functions)
        return self._paths[first]

    def _base_has(self, functions: Sequence[Function]) -> bool:
        """Whether the library that is loaded has these shims already: another process had it built with them."""
        wanted = libraries.shim_digests(self._shim_texts(functions))
        return self._base is not None and wanted.items() <= self._base.facts["shims"].items()

    def load(self, operator: str) -> None:
        """Load what registers an operator, compiled with the shims declared so far. Raises KernelError if it cannot."""
        if self.is_prebuilt:
            loading.load(self.sources[0], self.name, registers=(operator,))
        elif self._base is None:
            self._build(())

    def _build(self, needed: Sequence[Function]) -> None:
        if self.device == "CUDA":
            devices.has_cuda_set()  # what the library needs
        functions = self._together(needed)
        try:
            kept = libraries.build_library(self.recipe(functions))
        except KernelError:  # which one of them is wrong shall not keep the others from being built
            self.declared = [function for function in self.declared if function in self._paths]
            raise
        loading.load(kept.path, self.name, kept.facts["registers"] or ())
        self._base = self._base or kept
        self._paths |= dict.fromkeys(functions, kept.path)

    def _together(self, needed: Sequence[Function]) -> list[Function]:
        """What goes into one library: all that is not in one yet, but only one of several with the same symbol."""
        waiting = [function for function in self.declared if function not in self._paths]
        by_symbol = {shims.symbol(function): function for function in reversed(waiting)}
        by_symbol |= {shims.symbol(function): function for function in reversed(needed) if function not in self._paths}
        return list(by_symbol.values())

    def recipe(self, functions: Sequence[Function]) -> Recipe:
        """How to compile the functions' shims, and the sources unless they are loaded."""
        base = self._base
        units = self.shim_units(functions)
        if base is None:
            behind = {unit.source for unit in units}
            units += [Unit(source) for source in self.sources if source not in behind]
        settings = Settings(
            self.name, libraries.file_name(self.name), self.device == "CUDA", self.flags,
            registers_nothing=base is not None and base.facts["registers"] is not None,
        )  # fmt: skip
        texts = self._shim_texts(functions)
        return Recipe(settings, self.sources, tuple(units), texts, base.path if base else None, self.elsewhere)

    def _shim_texts(self, functions: Sequence[Function]) -> tuple[tuple[str, str], ...]:
        """Each shim by its symbol."""
        return tuple((shims.symbol(function), shims.text([function], None, self.device)) for function in functions)

    def shim_units(self, functions: Sequence[Function]) -> list[Unit]:
        """The shims, each behind the source that has its function."""
        behind: dict[pathlib.Path | None, list[Function]] = {}
        for function in functions:
            source = None if function.form == "aot" else self._source_of(function)
            behind.setdefault(source, []).append(function)
        return [Unit(source, shims.text(group, source, self.device)) for source, group in behind.items()]

    def _source_of(self, function: Function) -> pathlib.Path:
        folders = [pathlib.Path(flag[2:]) for flag in self.flags.host if re.match(r"-I.", flag)]
        found = finding.source_of(function.cpp_name, self.sources, folders)
        if found is None:
            names = ", ".join(path.name for path in self.sources)
            have = "has" if len(self.sources) == 1 else "have"
            raise KernelError(f"{self.name}: {names} {have} no function {function.cpp_name!r}")
        return found

    def _check(self, opened: Any, function: Function) -> None:
        path = self.sources[0]
        try:
            entry = opened[f"{shims.symbol(function)}Schema"]
        except AttributeError:
            raise KernelError(
                f"{path} has no kernel {function.declaration.name}: build it with bridge.build.ATenExtension"
            ) from None
        entry.restype = ctypes.c_char_p
        text = entry().decode()
        if text != function.declaration.text:
            raise KernelError(f"{path} was built for another schema: {text}, not {function.declaration.text}")


_shared: dict[Any, DeviceLibrary] = {}


def device_library(
    device: Variant, sources: tuple[pathlib.Path, ...], flags: Flags, elsewhere: bool = False
) -> DeviceLibrary:
    """The library of these sources in this process. A new one if they have changed since it was loaded."""
    key = (device, sources, flags, elsewhere)
    found = _shared.get(key)
    if found is None or not found.is_current():
        found = _shared[key] = DeviceLibrary(device, sources, flags, elsewhere)
    return found


class KernelLibrary:
    """The libraries of a kernel from sources: for each device that it has sources for.

    Args:
        variants: by device, "CPU" and "CUDA".
    """

    def __init__(self, variants: dict[Variant, DeviceLibrary]) -> None:
        self._variants = variants

    @property
    def devices(self) -> list[Device]:
        """MindSpore's names of the devices that there are sources for."""
        return [name for name, device in DEVICES.items() if device in self._variants]

    def declare(self, functions: Sequence[Function]) -> None:
        """Say what needs shims."""
        for variant in self._variants.values():
            variant.declare(functions)

    def variant(self, device: Variant) -> DeviceLibrary:
        """That for "CPU" or "CUDA". Raises KernelError if there are no sources for it."""
        if device not in self._variants:
            name = next(iter(self._variants.values())).name
            argument = "sources" if device == "CPU" else "cuda"
            raise KernelError(f"{name} has no sources for the {device}: give them in {argument}=")
        return self._variants[device]

    def path(self, target: Device, functions: Sequence[Function]) -> pathlib.Path:
        """The library with the first function's shim for one of MindSpore's devices (see DeviceLibrary.path)."""
        return self.variant(DEVICES[target]).path(functions)


def kernel_library(
    sources: dict[Variant, tuple[pathlib.Path, ...]], flags: dict[Variant, Flags], functions: Sequence[Function]
) -> KernelLibrary:
    """The libraries of these sources, by device, with these functions among others."""
    elsewhere = bool(sources["CUDA"])
    found = KernelLibrary({
        device: device_library(device, files, flags[device], elsewhere and device == "CPU")
        for device, files in sources.items() if files
    })  # fmt: skip
    found.declare(functions)
    return found
