"""scripts/check_structure.py finds what is against the rules of the tree: each kind is planted in a copy of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import check_structure
from structure import floors, private_names
from structure.breach import Breach

# Where, what is written there at the end, and what is said about it.
PLANTED = [
    pytest.param("bridge/op/planted.py", "from bridge.call import planted", "op.planted imports bridge.call", id="up"),
    pytest.param(
        "bridge/op/planted.py", "from ..primitive import planted", "op.planted imports bridge.primitive", id="relative"
    ),
    pytest.param(
        "bridge/call/planted.py", "import bridge.kernels.planted", "call.planted imports bridge.kernels", id="import"
    ),
    pytest.param(
        "bridge/op/planted.py",
        "def f():\n    from bridge.infer import planted",
        "op.planted imports bridge.infer",
        id="lazy",
    ),
    pytest.param(
        "bridge/infer/planted.py", "from bridge import kernels", "infer.planted imports bridge.kernels", id="package"
    ),
    pytest.param(
        "bridge/primitive/planted.py", "from bridge import manual_seed", "primitive.planted imports bridge,", id="face"
    ),
    pytest.param("bridge/garage/__init__.py", "", "bridge.garage has no floor", id="a package without a floor"),
    pytest.param("bridge/planted.py", "import bridge.another", "bridge.another, bridge.planted", id="a circle"),
    pytest.param(
        "bridge/planted.py", "from mindspore._c_expression import typing", "_c_expression", id="a private module"
    ),
    pytest.param("bridge/planted.py", "from mindspore.ops.primitive import _run_op", "_run_op", id="a private name"),
    pytest.param("bridge/planted.py", "from mindspore.ops import constexpr", "constexpr", id="an undocumented name"),
    pytest.param("bridge/op/planted.py", "import mindspore as ms\nms.common._planted()", "_planted", id="of a module"),
    pytest.param("bridge/op/planted.py", "def f(x):\n    return x._requires_grad", "_requires_grad", id="of an object"),
    pytest.param("bridge/op/planted.py", "class A:\n    __ms_class__ = True", "__ms_class__", id="in a class"),
    pytest.param(
        "bridge/op/planted.py", "def f(x):\n    return getattr(x, '_requires_grad')", "_requires_grad", id="in a text"
    ),
    pytest.param("aten_ops/planted.py", "import mindspore._c_expression", "_c_expression", id="in the generator"),
    pytest.param("ms_ext/planted.cpp", '#include "ir/primitive.h"', "ir/primitive.h", id="a header"),
    pytest.param("ms_ext/cuda/planted.cu", "#include <ir/func_graph.h>", "ir/func_graph.h", id="a header in brackets"),
]
FINE = [
    pytest.param("bridge/call/planted.py", "from bridge.op import planted", id="down"),
    pytest.param(
        "bridge/nn/planted.py", "from bridge.torch import planted\nfrom bridge.optim import planted", id="beside"
    ),
    pytest.param("bridge/port/planted.py", "from bridge import aten, kernels", id="to the operators"),
    pytest.param(
        "bridge/op/planted.py", "import mindspore as ms\nms.Tensor.__name__, self._own", id="names of one's own"
    ),
    pytest.param("ms_ext/planted.cpp", '#include "arguments.h"\n#include <ATen/Tensor.h>', id="headers of one's own"),
    pytest.param("ms_ext/mindspore/planted.cpp", '#include "ir/primitive.h"', id="a header in its place"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Breach]]:
    """A copy of the sources, with an empty module `planted` in each of bridge's rooms that there are and will be.

    With it comes what is found there.
    """
    root = tmp_path_factory.mktemp("tree")
    for folder in ("bridge", "aten_ops", "ms_ext"):
        generated = shutil.ignore_patterns("lib", "include", "__pycache__", "*.json", "bprops.py")
        shutil.copytree(check_structure.ROOT / folder, root / folder, ignore=generated)
    rooms = [name.split(".")[1] for names in floors.FLOORS for name in names if name.count(".")]
    for room in rooms:
        if room not in ("*", "__main__", "_mindspore", "_versions", "build"):
            append(root / "bridge" / room / "__init__.py", "")
            append(root / "bridge" / room / "planted.py", "")
    append(root / "bridge" / "another.py", "import bridge.planted")
    append(root / "bridge" / "planted.py", "")
    return root, check_structure.breaches(root)


@pytest.fixture
def tree(copy: tuple[Path, list[Breach]]) -> Iterator[Path]:
    """The copy, which is as it was when the test ends."""
    root, _ = copy
    before = {path: path.read_text() for path in root.rglob("planted.*")} | {
        root / private_names.PYTHON_HOME: (root / private_names.PYTHON_HOME).read_text()
    }
    yield root
    for path in [*root.rglob("planted.*"), root / private_names.PYTHON_HOME]:
        if path in before:
            path.write_text(before[path])
        else:
            path.unlink()
    shutil.rmtree(root / "bridge" / "garage", ignore_errors=True)


def append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else ""
    path.write_text(f"{before}{text}\n")


@pytest.mark.parametrize(("path", "text", "said"), PLANTED)
def test_what_is_planted_is_found(copy: tuple[Path, list[Breach]], tree: Path, path: str, text: str, said: str) -> None:
    append(tree / path, text)
    found = [breach for breach in check_structure.breaches(tree) if breach not in copy[1]]
    assert found and all(breach.path == tree / path or "each other" in breach.what for breach in found), found
    assert any(said in breach.what for breach in found), found


@pytest.mark.parametrize(("path", "text"), FINE)
def test_what_keeps_the_rules_passes(copy: tuple[Path, list[Breach]], tree: Path, path: str, text: str) -> None:
    append(tree / path, text)
    assert check_structure.breaches(tree) == copy[1]


def test_an_import_that_is_listed_passes_as_long_as_it_is_there(tree: Path) -> None:
    listed = {("bridge.op.planted", "bridge.call.planted"): "a reason"}
    before = floors.breaches(tree)
    stale = [breach.what for breach in floors.breaches(tree, exceptions=listed) if breach not in before]
    assert stale == ["bridge.op.planted no longer imports bridge.call.planted: drop it from EXCEPTIONS"]
    append(tree / "bridge" / "op" / "planted.py", "from bridge.call import planted")
    assert floors.breaches(tree, exceptions=listed) == before


def test_the_names_have_a_home(copy: tuple[Path, list[Breach]], tree: Path) -> None:
    append(tree / private_names.PYTHON_HOME, "from mindspore.ops.primitive import _run_op")
    assert check_structure.breaches(tree) == copy[1]


def test_the_tree_is_clean() -> None:
    assert list(map(str, check_structure.breaches())) == []
