"""Builds libraries of kernels, and keeps them: one with the shims that are asked for, or with more, is built once."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from bridge.kernels import cache, compiler_errors, objects, toolchain
from bridge.kernels.objects import Settings, Unit
from bridge.kernels.registrations import tried

# MindSpore's class for attributes takes std::string by value, in the string ABI that MindSpore was compiled with.
_ATTRIBUTES = "custom_aot_extra.h"


@dataclass(frozen=True)
class Recipe:
    """What one library is made of.

    Args:
        settings: what its objects have in common.
        sources: the user's files.
        units: what is compiled.
        shims: the shims among that, by their symbols.
        base: a library of the same sources that the process has loaded: this one brings only shims, and uses it.
        elsewhere: whether functions may be missing because they are in the sources for the GPU.
    """

    settings: Settings
    sources: tuple[pathlib.Path, ...]
    units: tuple[Unit, ...]
    shims: tuple[tuple[str, str], ...]
    base: pathlib.Path | None = None
    elsewhere: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """By which a library that is kept can be known."""
        return {"shims": shim_digests(self.shims), "base": self.base.name if self.base else ""}

    def is_met_by(self, kept: cache.Kept) -> bool:
        ours, theirs = self.facts, kept.facts
        return ours["base"] == theirs["base"] and ours["shims"].items() <= theirs["shims"].items()


def shim_digests(texts: Sequence[tuple[str, str]]) -> dict[str, str]:
    """What tells shims of the same symbols apart."""
    return {symbol: cache.digest(text) for symbol, text in texts}


def file_name(name: str) -> str:
    return re.sub(r"\W", "_", name)


def build_library(recipe: Recipe) -> cache.Kept:
    """The recipe's library: one that is kept, or else a new one.

    Raises KernelError if it cannot be compiled or linked.
    """
    settings = recipe.settings
    parts: list[str | bytes] = [
        *objects.versions(settings.cuda), settings.module, *settings.flags.host, "|", *settings.flags.nvcc,
        str(recipe.elsewhere),
    ]  # fmt: skip
    for source in recipe.sources:
        parts += [str(source), source.read_bytes()]
    place = cache.folder() / f"{file_name(settings.name)}-{cache.digest(*parts)}"
    kept = next(filter(recipe.is_met_by, cache.current(place)), None)
    if kept is not None:
        return kept
    with cache.locked(place, settings.name) as scratch:
        kept = next(filter(recipe.is_met_by, cache.current(place)), None)  # by the process that held the lock
        return kept if kept is not None else _build(recipe, place, scratch)


def _build(recipe: Recipe, place: pathlib.Path, scratch: pathlib.Path) -> cache.Kept:
    name = recipe.settings.name
    files = ", ".join(source.name for source in recipe.sources)
    cache.say(f"building {name} for {'CUDA' if recipe.settings.cuda else 'the CPU'} from {files}")
    started = time.monotonic()
    compiled, settings = _compile_all(recipe, int(os.environ.get("BRIDGE_JOBS", 2)))
    headers = {path: one for kept in compiled for path, one in kept.headers.items()}
    content = cache.digest(*(str(kept.path) for kept in compiled), recipe.facts["base"])
    fresh = scratch / f"{file_name(name)}-{content}.so"
    _link(replace(recipe, settings=settings), [kept.path for kept in compiled], fresh)
    made = cache.Kept(place / fresh.name, headers, recipe.facts | {"registers": tried(name, fresh)})
    os.replace(fresh, made.path)
    cache.keep(place, made)
    cache.say(f"built {name} in {time.monotonic() - started:.1f} s")
    return made


def build_into(recipe: Recipe, target: pathlib.Path, jobs: int) -> None:
    """Compile and link to `target`. Raises KernelError with the first error on top."""
    compiled, settings = _compile_all(recipe, jobs)
    with cache.locked(cache.folder() / "linking", target.name) as scratch:
        fresh = scratch / target.name
        _link(replace(recipe, settings=settings), [kept.path for kept in compiled], fresh)
        shutil.move(fresh, target)


def _compile_all(recipe: Recipe, jobs: int) -> tuple[list[cache.Kept], Settings]:
    """The objects, and the settings that they have: all use MindSpore's std::string if one needs it.

    Which needs it is known when it is compiled. The sources' text tells in most cases, so that nothing has to be
    compiled twice.
    """
    guess = any(_ATTRIBUTES in source.read_text(errors="replace") for source in recipe.sources)
    compiled: list[cache.Kept] = []
    for mindspores_strings in (guess, not guess):
        settings = replace(recipe.settings, mindspores_strings=mindspores_strings)
        with ThreadPoolExecutor(jobs) as pool:
            compiled = list(pool.map(lambda unit, using=settings: objects.compiled(unit, using), recipe.units))
        needed = any(pathlib.Path(path).name == _ATTRIBUTES for kept in compiled for path in kept.headers)
        if needed == mindspores_strings:
            break
    return compiled, settings


def _link(recipe: Recipe, compiled: Sequence[pathlib.Path], target: pathlib.Path) -> None:
    settings = recipe.settings
    missing = _missing(_run_linker(recipe, compiled, target))
    if not missing:
        return
    if not recipe.elsewhere or any(symbol.startswith("_ZT") for symbol in missing):  # the latter are no functions
        raise compiler_errors.undefined(settings.name, missing, settings.mindspores_strings)
    stubs = target.with_name("absent.cpp")
    stubs.write_text(_stubs(missing))
    built = stubs.with_suffix(".o")
    command = toolchain.compile_command(stubs, built, module=settings.module, cuda=False, flags=settings.flags)
    objects.run(settings.name, command, "compiling what stands for functions of the GPU")
    _run_linker(recipe, [*compiled, built], target)


def _run_linker(recipe: Recipe, compiled: Sequence[pathlib.Path], target: pathlib.Path) -> str:
    settings = recipe.settings
    command = toolchain.link_command(compiled, target, cuda=settings.cuda, flags=settings.flags, base=recipe.base)
    return objects.run(settings.name, command, "linking")


def _missing(output: str) -> list[str]:
    """The C++ symbols that nobody defines. Python's, which have C's names, are in the process."""
    return sorted(set(re.findall(r"undefined reference to [`'](_Z\w+)'", output)))


def _stubs(missing: list[str]) -> str:
    """Functions of these mangled names, each of which throws an error that names it."""
    lines = ["#include <stdexcept>"]
    for i, symbol in enumerate(missing):
        words = f"{compiler_errors.demangled(symbol)} is in none of the sources for the CPU"
        lines.append(f'extern "C" void absent_{i}() __asm__("{symbol}");')
        lines.append(f'extern "C" void absent_{i}() {{ throw std::runtime_error("{words}"); }}')
    return "\n".join(lines) + "\n"
