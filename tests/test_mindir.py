"""A graph that was exported with the bridge's operators, loaded by another process."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import ops

import bridge
from bridge import aten

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)

LOADED = """
import sys
import mindspore as ms, numpy as np, torch
{imported}
net = ms.nn.GraphCell(ms.load(sys.argv[1]))
np.save(sys.argv[2], net(ms.Tensor(np.load(sys.argv[2])))[0].asnumpy())
"""


class Net(ms.nn.Cell):
    def construct(self, x):
        places = ops.nonzero(x)  # so that shapes are known, and inferred, when the graph runs
        return aten.gelu(aten.leaky_relu(x, 0.1)), aten.neg(places)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("exported") / "net.mindir"
    ms.export(Net(), ms.Tensor(X), file_name=str(path.with_suffix("")), file_format="MINDIR")
    return path


def load(exported: pathlib.Path, imported: str, folder: pathlib.Path) -> tuple[int, str, np.ndarray]:
    """Run the graph on X in another process: its exit code, what it said, and its result."""
    data = folder / "x.npy"
    np.save(data, X)
    root = str(pathlib.Path(bridge.__file__).parent.parent)
    program = f"import sys; sys.path.insert(0, {root!r}); {LOADED.format(imported=imported)}"
    done = subprocess.run(
        [sys.executable, "-c", program, str(exported), str(data)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=300,
    )
    return done.returncode, done.stderr, np.load(data)


def test_with_the_bridge(exported: pathlib.Path, tmp_path: pathlib.Path) -> None:
    code, said, result = load(exported, "import bridge", tmp_path)
    assert code == 0, said
    expected = torch.nn.functional.gelu(torch.nn.functional.leaky_relu(torch.tensor(X), 0.1))
    np.testing.assert_array_equal(result, expected.numpy())


def test_without_the_bridge(exported: pathlib.Path, tmp_path: pathlib.Path) -> None:
    code, said, _ = load(exported, "", tmp_path)
    assert code == 1, said  # an ordinary exception
    assert "`import bridge` has to come before" in said
