"""Public PyTorch files, ported by other imports and few edits: scripts/ported has all, in both modes."""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest

from ported.compare import MODES, compare
from ported.files.simple_vit import FILE


def skip_without(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the file is {package}'s, which is not installed")


@pytest.mark.parametrize("mode", MODES)
def test_a_ported_file_has_pytorchs_bits(mode: str) -> None:
    skip_without("vit_pytorch")
    assert compare(FILE, mode) == []


def test_a_comparison_finds_what_differs() -> None:
    skip_without("vit_pytorch")
    methods = dict(FILE.edits["method"])
    methods["x.mean(dim = 1)"] = "torch.amax(x, dim = 1)"
    differences = compare(dataclasses.replace(FILE, edits={**FILE.edits, "method": methods}), "pynative")
    assert any(line.startswith("results") for line in differences)
    assert any(line.startswith("gradients: transformer.norm.weight") for line in differences)


def test_an_edit_that_finds_nothing_is_an_error() -> None:
    skip_without("vit_pytorch")
    with pytest.raises(ValueError, match=r"vit_pytorch\.simple_vit of the installed release has no 'no such text'"):
        dataclasses.replace(FILE, edits={"method": {"no such text": ""}}).ported_text()
