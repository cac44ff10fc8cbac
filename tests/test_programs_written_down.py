"""What a kept program follows from: it is captured anew when a value that its code finds somewhere is another one."""

from __future__ import annotations

import contextvars
import datetime
import functools
import os
import pathlib
import secrets
import subprocess
import sys
from types import MethodType, SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

import bridge
from bridge.programs.written_down import write_down
from of_users import networks, settings

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]
ENVIRONMENT = "SCALE_OF_THIS_TEST"


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Puts back what a test changes."""
    monkeypatch.setenv(ENVIRONMENT, "2")
    networks.cached.cache_clear()
    return monkeypatch


def change(patch: pytest.MonkeyPatch) -> None:
    """Change all values."""
    patch.setattr(settings, "K", 3.0)
    patch.setitem(settings.D, "k", 3.0)
    patch.setitem(settings.table, "k", 3.0)
    patch.setattr(settings, "recent", settings.Recent([3.0]))
    patch.setattr(settings, "S", settings.S | {"c"})
    for holder in (settings.namespace, settings.Options, networks.counted, networks.Base):
        patch.setattr(holder, "k", 3.0)
    for holder in (settings.setting, settings.tool, settings.slotted):
        patch.setattr(holder, "v", 3.0)
    patch.setattr(settings, "activation", torch.sin)
    patch.setattr(settings, "power", functools.partial(torch.pow, exponent=3.0))
    patch.setattr(settings, "mode", settings.Mode.OTHER)
    patch.setattr(networks, "ARRAY", np.array([3.0], np.float32))
    patch.setenv(ENVIRONMENT, "3")
    networks.cached.cache_clear()


def digest(function: Any) -> bytes:
    written = write_down(function, [])
    assert written is not None
    return written.digest


@pytest.mark.parametrize("forward", networks.FORWARDS.values(), ids=networks.FORWARDS)
def test_what_code_finds_is_written_down(patch: pytest.MonkeyPatch, forward: Any) -> None:
    network, x = networks.Network(forward), torch.ones(1)
    first, result = digest(network), network(x)
    assert digest(networks.Network(forward)) == first
    change(patch)
    assert network(x) != result
    assert digest(networks.Network(forward)) != first


def in_group(patch: pytest.MonkeyPatch) -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)


@pytest.mark.parametrize(
    "function, other",
    [
        (lambda x: x * len(sys.argv), lambda patch: patch.setattr(sys, "argv", [*sys.argv, "more"])),
        (lambda x: x * len(os.getcwd()), lambda patch: patch.chdir(pathlib.Path(__file__).parents[2])),
        (lambda x: x * (dist.get_rank() if dist.is_initialized() else 7), in_group),
        (lambda x: x * float(os.environ.get(ENVIRONMENT, "7")), lambda patch: patch.setenv(ENVIRONMENT, "3")),
        (lambda x: x * networks.get_scale(settings), lambda patch: patch.setattr(settings, "K", 3.0)),
    ],
    ids=["arguments", "folder", "rank", "a variable of the environment", "what a getter finds"],
)
def test_what_another_process_has_otherwise_is_written_down(
    patch: pytest.MonkeyPatch, function: Any, other: Any
) -> None:
    first = digest(function)
    assert digest(function) == first
    try:
        other(patch)
        assert digest(function) != first
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def patched(k: float) -> networks.Network:
    """A network whose forward is another function, as programs do that change others' networks."""
    network = networks.Network(lambda module, x: x)
    network.forward = MethodType(lambda module, x: x * k, network)  # type: ignore[method-assign]
    return network


def tagged(k: float) -> networks.Network:
    """A network whose parameter has an attribute."""
    network = networks.Network(lambda module, x: module.scale * x * module.scale.k)
    network.scale = torch.nn.Parameter(torch.ones(1))
    network.scale.k = k  # type: ignore[attr-defined]
    return network


def partial(k: float) -> networks.Network:
    class Partial(networks.Network):
        def scaled_by(self, x: Any, k: float) -> Any:
            return x * k

        forward = functools.partialmethod(scaled_by, k=k)  # type: ignore[assignment]

    return Partial(lambda module, x: x)


@pytest.mark.parametrize("make", [patched, tagged, partial])
def test_networks_that_differ_in_what_is_put_there(make: Any) -> None:
    x = ms.Tensor(np.ones(1, np.float32))
    assert [ms.jit(bridge.cell(make(k)))(x).asnumpy().item() for k in (2.0, 3.0, 2.0)] == [2, 3, 2]
    assert digest(make(2.0)) == digest(make(2.0)) != digest(make(3.0))


def test_what_cannot_be_followed_is_not_kept() -> None:
    variable: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=2.0)
    assert write_down(networks.Network(lambda module, x: x * variable.get()), []) is None
    assert write_down(networks.Network(lambda module, x: x * globals()["np"].pi), []) is None


@pytest.mark.parametrize(
    "forward",
    [
        networks.of_a_file,
        lambda module, x: x * float(np.load("scale.npy")),
        lambda module, x: x * len(os.listdir()),
        lambda module, x: x * os.path.exists("scale.txt"),
        lambda module, x: x * float(subprocess.check_output(["cat", "scale.txt"])),
        lambda module, x: x * datetime.datetime.now().microsecond,
        lambda module, x: x * secrets.randbelow(9),
        lambda module, x: x * float(os.environ["_".join(["SCALE", "OF"])]),
        lambda module, x: x * float(os.environ.get(ENVIRONMENT + "OF", "2")),
        lambda module, x: x * float({**os.environ}["SCALE_OF"]),
        lambda module, x: x * eval("settings.K"),
        lambda module, x: getattr(networks, "".join(["of_a_", "file"]))(module, x),
        lambda module, x: vars(networks)["of_a_file"](module, x),
    ],
)
def test_what_is_read_from_files_or_computed_is_not(forward: Any) -> None:
    assert write_down(networks.Network(forward), []) is None


@pytest.mark.parametrize(
    "forward",
    [
        lambda module, x: module.eval(),
        lambda module, x: x * float(os.environ.get("SCALE", "2")),
        lambda module, x: x * float(os.getenv("SCALE", default="2")),
        lambda module, x: x * ("SCALE" in os.environ),
        lambda module, x: x * float(os.path.join("2")),
    ],
)
def test_what_code_names_is(forward: Any) -> None:
    assert write_down(networks.Network(forward), []) is not None


def in_graph(function: Any) -> float:
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return function(x)

    return float(ms.jit(call)(ms.Tensor([1.0], ms.float32)))


def test_programs_are_captured_anew(patch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    patch.setattr(networks, "FILE", str(tmp_path / "scale.txt"))
    forwards = [networks.FORWARDS["a module"], networks.FORWARDS["its class"], networks.of_a_file]

    def results() -> list[float]:
        found = [in_graph(bridge.cell(networks.Network(forward))) for forward in forwards]
        return [*found, in_graph(bridge.fuse(networks.of_operators))]

    pathlib.Path(networks.FILE).write_text("2")
    assert results() == [2, 2, 2, 8]
    change(patch)
    pathlib.Path(networks.FILE).write_text("3")
    assert results() == [3, 3, 3, 18]


def save_tensors(path: str, k: np.ndarray) -> None:
    torch.save({"scale": torch.from_numpy(k)}, path)


@pytest.mark.parametrize(
    "forward, save", [(networks.of_an_array_in_a_file, np.save), (networks.of_tensors_in_a_file, save_tensors)]
)
def test_what_is_loaded_is_not_kept(patch: pytest.MonkeyPatch, tmp_path: pathlib.Path, forward: Any, save: Any) -> None:
    patch.setattr(networks, "FILE", str(tmp_path / "scale.npy"))
    for k in (2.0, 3.0):
        save(networks.FILE, np.array([k], np.float32))
        assert in_graph(bridge.cell(networks.Network(forward))) == k


class Keeps(torch.nn.Module):
    """What has another order or hash in each process."""

    names = frozenset({"some", "names", "of", "parts"})

    def __init__(self) -> None:
        super().__init__()
        self.part = SimpleNamespace(names=set(self.names), _original_object_hash=hash("a text"))

    @functools.cached_property
    def count(self) -> int:
        return len(self.names)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.count


def test_processes_agree() -> None:
    command = "import test_programs_written_down as own; print(own.digest(own.Keeps()).hex())"
    found = {
        subprocess.run(
            [sys.executable, "-c", command],
            capture_output=True,
            text=True,
            check=True,
            cwd=pathlib.Path(__file__).parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.splitlines()[-1]
        for seed in ("1", "2")
    }
    assert len(found) == 1


# A module calls a package, whose settings change in each call.
OF_PACKAGE = """
import mindspore as ms
import settings
import torch

import bridge


class Noted(torch.nn.Module):
    def forward(self, x):
        settings.current.note()
        return x + 1


ms.set_context(mode=ms.GRAPH_MODE)
print(bridge.cell(Noted())(ms.Tensor([1.0])), settings.current.calls)
"""
SETTINGS = """
class Settings:
    calls = 0

    def note(self):
        self.calls += 1


current = Settings()
"""


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_packages_may_lie_elsewhere(folder: str, tmp_path: pathlib.Path) -> None:
    script, place = tmp_path / "noted.py", tmp_path / folder
    place.mkdir()
    script.write_text(OF_PACKAGE)
    (place / "settings.py").write_text(SETTINGS)
    path = os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "BRIDGE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=environment)
    # Nobody looks into an object of a package whether a second capture differs.
    assert done.stdout.splitlines()[-1:] == ["[2.] 1"], done.stderr
