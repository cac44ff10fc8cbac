"""The stubs say what the operators take: an editor shows them, and a type checker believes them."""

from __future__ import annotations

import ast
import inspect
import pathlib
from types import ModuleType

import mindspore as ms
import pytest

import bridge
from bridge import nn
from bridge import torch as T
from bridge.op.overload import overload
from bridge.op.table import packets
from bridge.torch.function import Function
from bridge.torch.nn import functional as F

PACKAGE = pathlib.Path(bridge.__file__).parent
STUBS = ast.parse((PACKAGE / "aten.pyi").read_text())
# The defaults that Python code writes otherwise than a schema does.
WRITTEN = {"dtype.int64": "int64"}


def calls() -> dict[str, ast.FunctionDef]:
    """The __call__ of each overload's class, by its schema, which is the docstring."""
    found = {}
    for node in STUBS.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("_Overload_"):
            call = next(item for item in node.body if isinstance(item, ast.FunctionDef))
            found[ast.get_docstring(call, clean=False) or ""] = call
    return found


def defaults(call: ast.FunctionDef) -> dict[str, object]:
    positional = call.args.args
    given = call.args.defaults
    pairs = [
        *zip(positional[len(positional) - len(given) :], given, strict=True),
        *((arg, value) for arg, value in zip(call.args.kwonlyargs, call.args.kw_defaults, strict=True) if value),
    ]
    found = {}
    for arg, value in pairs:
        text = ast.unparse(value)
        found[arg.arg.removesuffix("_")] = WRITTEN[text] if text in WRITTEN else ast.literal_eval(value)
    return found


def test_defaults_are_those_of_the_schemas() -> None:
    found = {text: defaults(call) for text, call in calls().items()}
    schemas = [overload(name).schema for names in packets().values() for name in names]
    assert sorted(schema.text for schema in schemas) == sorted(found)
    for schema in schemas:
        optional = {a.name.removesuffix("_"): a for a in schema.arguments if not a.required}
        assert found[schema.text].keys() == optional.keys(), schema.text
        for name, default in found[schema.text].items():
            argument = optional[name]
            size = argument.size if argument.is_list and isinstance(default, int) else None
            written = [default] * size if size else default  # one int stands for N equal ones
            assert written == argument.default, (schema.text, name)
            assert isinstance(default, bool) == isinstance(argument.default, bool), (schema.text, name)


def test_a_type_checker_is_told_that_the_package_has_types() -> None:
    assert (PACKAGE / "py.typed").exists()


def defined(stub: str) -> set[str]:
    """The public functions and classes of a stub."""
    tree = ast.parse((PACKAGE / stub).read_text())
    return {
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    }


@pytest.mark.parametrize(
    ("stub", "namespace"),
    [("torch/functions.pyi", T), ("torch/fft.pyi", T.fft), ("torch/linalg.pyi", T.linalg),
     ("torch/special.pyi", T.special), ("torch/nn/functional.pyi", F)],
)  # fmt: skip
def test_functions_are_those_of_the_namespace(stub: str, namespace: ModuleType) -> None:
    names = {name for name, value in vars(namespace).items() if isinstance(value, Function)}
    assert defined(stub) - OWN == names - {"finfo", "iinfo"}


def test_dtypes_are_those_of_the_namespace() -> None:
    tree = ast.parse((PACKAGE / "torch/functions.pyi").read_text())
    written = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    values = {name for name, value in vars(T).items() if isinstance(value, (ms.dtype.Type, float))}
    assert written == {*values, "newaxis"}


# What bridge.torch writes itself.
OWN = {"manual_seed", "get_default_dtype", "set_default_dtype"}
# What bridge.torch writes itself.
OWN = {"manual_seed", "get_default_dtype", "set_default_dtype"}
USED = """
import mindspore as ms
from bridge import nn, optim, torch
from bridge.nn import functional as F

x = ms.Tensor([[1.0]])
y: ms.Tensor = F.softmax(x, dim=1, dtype=ms.float32)
torch.linalg.norm(torch.view(y, 1, -1), ord="fro")
net = nn.Sequential(nn.Conv2d(3, 4, (3, 3), padding="same"), nn.LSTM(4, 5))
optim.AdamW(net.trainable_params(), lr=1e-3, betas=(0.9, 0.99), loss_scale=2.0)
torch.no_grad()
"""
MISUSED = """
from bridge import nn, optim, torch
from bridge.nn import functional as F

F.softmax(torch.ones(2), dims=1)
nn.Conv2d(3, 4)
optim.AdamW([], weight_decay="a")
torch.linalg.svd(torch.ones(2, 2), True, "gesvd")
"""


def test_a_type_checker_knows_functions_layers_and_optimizers(tmp_path: pathlib.Path) -> None:
    api = pytest.importorskip("mypy.api", reason="mypy is an extra of the linters")
    options = ["--ignore-missing-imports", "--cache-dir", str(tmp_path / "cache")]

    def complaints(program: str) -> list[int]:
        (tmp_path / "program.py").write_text(program)
        lines, errors, _ = api.run([*options, str(tmp_path / "program.py")])
        assert not errors
        return sorted({int(line.split(":")[1]) for line in lines.splitlines() if ": error:" in line})

    assert complaints(USED) == []
    assert complaints(MISUSED) == [5, 6, 7, 8]


def test_help_and_signatures_are_pytorchs() -> None:
    assert [*inspect.signature(F.softmax).parameters][:2] == ["input", "dim"]
    assert str(inspect.signature(T.linalg.svd)) == "(A, full_matrices=True, *, driver=None, out=None)"
    assert (F.softmax.__doc__ or "").startswith("softmax(input")
    for function in (F.softmax, T.linalg.svd):
        page = f"https://docs.pytorch.org/docs/stable/generated/{function.__name__}.html"
        assert (function.__doc__ or "").endswith(page)
    assert "in_channels" in inspect.signature(nn.Conv2d).parameters
    assert "torch.nn.Conv2d.html" in (nn.Conv2d.__doc__ or "")
