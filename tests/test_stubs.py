"""The stubs say what the operators take: an editor shows them, and a type checker believes them."""

from __future__ import annotations

import ast
import pathlib

import bridge
from bridge.op.overload import overload
from bridge.op.table import packets

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
