"""Keeps the programs of modules, by everything that they follow from, for the next process.

Plans lie in `$BRIDGE_CACHE/programs` (by default ~/.cache/aten-bridge/programs). A plan's name is a digest of the
module (its class, settings and the shapes of its tensors), of the inputs, of what PyTorch chooses kernels by, and of
versions. With a plan stand the digests of the source files that it came from: all loaded files of each package whose
code was running when PyTorch was called. When one has changed, the module is captured anew.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pathlib
import pickle
import sys
import sysconfig
from collections.abc import Callable, Iterable
from typing import Any

import mindspore
import torch

from bridge.kernels.cache import folder
from bridge.programs.plan import Plan

_OWN = pathlib.Path(__file__).parent
# What versions stand for.
_VERSIONED = tuple(
    f"{path}/" for path in (pathlib.Path(torch.__file__).parent, _OWN.parent, sysconfig.get_paths()["stdlib"])
)


class _ModulePickler(pickle.Pickler):
    """Writes a module with the shapes of its parameters and buffers instead of their data."""

    def __init__(self, to: io.BytesIO, state: set[int]) -> None:
        super().__init__(to, protocol=4)
        self._state = state

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        spec = (type(value).__name__, tuple(value.shape), str(value.dtype), value.requires_grad, str(value.device))
        if id(value) in self._state:
            return repr(spec)
        data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return repr((spec, hashlib.sha256(data.tobytes()).hexdigest()))


def key(module: torch.nn.Module, names: Iterable[str], inputs: Any, device: str) -> str | None:
    """The name under which a module's plan is kept; None if something in the module cannot be written down.

    Args:
        names: those of the parameters and buffers that are a program's inputs. Other tensors are its constants.
        inputs: what tells the arguments apart, by its `repr`.
        device: PyTorch's name of where the program runs.
    """
    tensors = dict((*module.named_parameters(), *module.named_buffers()))
    state = {id(tensors[name]) for name in names}
    written = io.BytesIO()
    try:
        _ModulePickler(written, state).dump(module)
    except Exception:  # whatever the attributes of somebody's module raise: it is captured in each process
        return None
    digest = hashlib.sha256(written.getvalue())
    for part in (inputs, device, _choices(device), torch.__version__, mindspore.__version__, sys.version):
        digest.update(repr(part).encode())
    for source in sorted(_OWN.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def _choices(device: str) -> Any:
    """What PyTorch's composites choose their kernels by."""
    backends = torch.backends
    return (
        torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), backends.mkldnn.enabled,
        backends.cudnn.enabled, backends.cudnn.deterministic, backends.cuda.flash_sdp_enabled(),
        backends.cuda.mem_efficient_sdp_enabled(), backends.cuda.math_sdp_enabled(), backends.cuda.cudnn_sdp_enabled(),
        backends.cpu.get_cpu_capability(), torch.cuda.get_device_capability(device) if device != "cpu" else None,
    )  # fmt: skip


def place() -> pathlib.Path:
    """The folder of plans and programs."""
    return folder() / "programs"


def load(name: str) -> Plan | None:
    """A plan that is kept, if what it came from is as it was."""
    try:
        kept = json.loads((place() / f"{name}.json").read_text())
    except (OSError, ValueError):
        return None
    if any(_digest(path) != digest for path, digest in kept["sources"].items()):
        return None
    plan = Plan.from_json(kept["plan"])
    return plan if all(os.path.exists(path) for path in plan.files) else None


def keep(name: str, plan: Plan, files: Iterable[str]) -> None:
    """Keep a plan, which came from code in these files."""
    sources = {path: _digest(path) for path in sorted(_sources(files))}
    fresh = place() / f"{name}.{os.getpid()}"
    fresh.write_text(json.dumps({"plan": plan.to_json(), "sources": sources}))
    os.replace(fresh, place() / f"{name}.json")


def _sources(files: Iterable[str]) -> set[str]:
    """The loaded files of the packages that these belong to."""
    loaded = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py"):
            loaded[file] = name.partition(".")[0]
    own = {file for file in files if not file.startswith(_VERSIONED) and os.path.exists(file)}
    packages = {loaded[file] for file in own if file in loaded}
    return own | {file for file, package in loaded.items() if package in packages}


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    except OSError:
        return "absent"


Capture = Callable[[], tuple[Plan, Iterable[str]]]


def plan(name: str | None, capture: Capture) -> Plan:
    """The plan of this name: the one kept, or else a new one."""
    found = None if name is None else load(name)
    if found is None:
        found, files = capture()
        if name is not None:
            keep(name, found, files)
    return found
