"""Keeps the programs of functions, by everything that they follow from, for the next process.

Plans lie in `$BRIDGE_CACHE/programs` (by default ~/.cache/aten-bridge/programs). A plan's name is a digest of the
function (a module's class, settings and the shapes of its tensors; any function's code and what it can see), of the
inputs, of what PyTorch chooses kernels by, and of versions. With a plan stand the digests of the source files that it
came from: all loaded files of each package whose code was running when PyTorch was called. When one has changed, the
function is captured anew. So it is where a file is damaged: a program's name is a digest of its content.

Where nothing can be written in that folder, as on a full disk, plans are kept for the process.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mindspore
import torch

from bridge.kernels.cache import folder
from bridge.programs import held
from bridge.programs.choices import choices
from bridge.programs.plan import Origin, Plan
from bridge.programs.written_down import Written, digest_of

_OWN = pathlib.Path(__file__).parent
# What versions stand for.
_VERSIONED = tuple(
    f"{path}/" for path in (pathlib.Path(torch.__file__).parent, _OWN.parent, sysconfig.get_paths()["stdlib"])
)


@dataclass
class Key:
    """Under what a plan is kept.

    Args:
        name: that of its file.
        tensors: the ids of the tensors that the name follows from.
        state: the tensors that are the program's inputs.
    """

    name: str
    tensors: set[int]
    state: Sequence[torch.Tensor]


def key(written: Written | None, state: Sequence[torch.Tensor], inputs: Any, device: str) -> Key | None:
    """The name under which a function's plan is kept; None if something in the function cannot be written down.

    Args:
        written: what tells the function from others, and what it is called with beside the tensors of the graph.
        state: the tensors that are the program's inputs. Others that the function has are its constants.
        inputs: what tells these tensors apart, by its `repr`.
        device: PyTorch's name of where the program runs.
    """
    if written is None:
        return None
    digest = hashlib.sha256(written.digest)
    processors = (
        torch.backends.cpu.get_cpu_capability(),
        torch.cuda.get_device_capability(device) if device != "cpu" else None,
    )
    for part in (
        inputs,
        device,
        choices(device != "cpu"),
        processors,
        torch.__version__,
        mindspore.__version__,
        sys.version,
    ):
        digest.update(repr(part).encode())
    digest.update(_own_sources())
    return Key(digest.hexdigest()[:32], written.tensors, state)


@functools.cache
def _own_sources() -> bytes:
    """What tells the sources of this package from others."""
    return hashlib.sha256(b"".join(source.read_bytes() for source in sorted(_OWN.glob("*.py")))).digest()


# So many bytes are written to see whether that is possible.
_TRIAL = 2**20


def place() -> pathlib.Path:
    """The folder where plans and programs are kept."""
    own = folder() / "programs"
    return own if _takes_files(own) else pathlib.Path(_of_process().name)


@functools.cache
def _takes_files(own: pathlib.Path) -> bool:
    try:
        own.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=own) as file:
            file.write(bytes(_TRIAL))
        return True
    except OSError as error:
        warnings.warn(
            f"what graphs are captured to is not kept for the next process, because nothing can be written to {own} "
            f"({error.strerror}): BRIDGE_CACHE names another folder",
            stacklevel=1,
        )
        return False


@functools.cache
def _of_process() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bridge-programs-", ignore_cleanup_errors=True)


def load(key: Key) -> Plan | None:
    """A plan that is kept, if what it came from is as it was."""
    places = dict.fromkeys((place(), folder() / "programs"))  # what cannot be written to may be read
    return next(filter(None, (_load(one / f"{key.name}.json", key) for one in places)), None)


def _load(file: pathlib.Path, key: Key) -> Plan | None:
    try:
        kept = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(kept, dict) or not kept.keys() >= {"plan", "sources", "held"}:
        return None
    if any(_digest(path) != digest for path, digest in kept["sources"].items()):
        return None
    if kept["held"]:
        held.wait()
    if any(digest_of(key.state[int(position)]) != digest for position, digest in kept["held"].items()):
        return None
    plan = Plan.from_json(kept["plan"])
    return plan if all(_digest(path).startswith(pathlib.Path(path).stem) for path in plan.files) else None


def has(key: Key | None) -> bool:
    """Whether there is such a plan."""
    return key is not None and load(key) is not None


def keep(name: str, plan: Plan, origin: Origin) -> None:
    """Keep a plan."""
    sources = {path: _digest(path) for path in sorted(_sources(origin.files))}
    now = {position: digest_of(tensor) for position, tensor in origin.held.items()}
    fresh = place() / f"{name}.{os.getpid()}"
    fresh.write_text(json.dumps({"plan": plan.to_json(), "sources": sources, "held": now}))
    os.replace(fresh, place() / f"{name}.json")


def are_apart(one: str, other: str) -> bool:
    """Whether it is known that two calls leave nothing for each other, by the names of their plans; an empty one is of
    a plan that is not kept."""
    return _pair(one, other).exists()


def note_apart(one: str, other: str) -> None:
    """Keep that two calls leave nothing for each other."""
    if one and other:
        _pair(one, other).touch()


def _pair(one: str, other: str) -> pathlib.Path:
    """A file whose name follows from both plans and from what they came from."""
    digest = hashlib.sha256()
    for name in sorted((one, other)):
        file = place() / f"{name}.json"
        digest.update(file.read_bytes() if name and file.exists() else name.encode())
    return place() / f"{digest.hexdigest()[:32]}.apart"


def _sources(files: Iterable[str]) -> set[str]:
    """The loaded files of the packages that these belong to."""
    loaded = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")  # a module's `__getattr__` may import others
        if isinstance(file, str) and file.endswith(".py"):
            loaded[file] = name.partition(".")[0]
    own = {file for file in files if not file.startswith(_VERSIONED) and os.path.exists(file)}
    packages = {loaded[file] for file in own if file in loaded}
    return own | {file for file, package in loaded.items() if package in packages}


def _digest(path: str) -> str:
    try:
        found = os.stat(path)
        return _digest_at(path, found.st_mtime_ns, found.st_size, found.st_ino)
    except OSError:
        return "absent"


@functools.cache
def _digest_at(path: str, *_: int) -> str:
    """The digest of a file that has this time, size and number."""
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def plan(key: Key | None, capture: Callable[[], tuple[Plan, Origin]]) -> Plan:
    """The plan under this key: the one kept, or else a new one.

    A new one is kept if the key knows the tensors that the function has found.
    """
    found = None if key is None else load(key)
    if found is None:
        found, origin = capture()
        if key is not None and origin.tensors <= key.tensors:
            keep(key.name, found, origin)
    return found
