"""Programs that are kept for the next process: damaged files, and folders that take none."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from shared import data, on_device


def check() -> None:
    """A graph of a module, compiled anew."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
    net, x = bridge.cell(module), data(2, 4)

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    assert np.array_equal(call(ms.Tensor(x)).asnumpy(), module(on_device(x)).detach().cpu().numpy())


def cut(file: pathlib.Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def other(file: pathlib.Path) -> None:
    file.write_text("{}")


@pytest.mark.parametrize("damage", [cut, other, pathlib.Path.unlink])
@pytest.mark.parametrize("kind", ["program", "json"])
def test_damaged_files_are_made_anew(
    kind: str, damage: Callable[[pathlib.Path], Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRIDGE_CACHE", str(tmp_path))
    check()
    files = {file: file.read_bytes() for file in (tmp_path / "programs").glob(f"*.{kind}")}
    assert files
    for file in files:
        damage(file)
    check()
    assert {file: file.read_bytes() for file in files} == files


def test_a_folder_that_takes_no_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a part of a file's name here. A warning says so once."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BRIDGE_CACHE", str(tmp_path / "file" / "folder"))
    with pytest.warns(
        UserWarning, match=r"nothing can be written to .* \(Not a directory\): BRIDGE_CACHE names another"
    ):
        check()
    check()
