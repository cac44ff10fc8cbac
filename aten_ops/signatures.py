"""The signatures of PyTorch's functions and classes as a Python caller of the bridge sees them, for its stubs.

A signature is taken from the first of these that has it: PyTorch's own stubs, with the defaults that Python knows;
Python itself; the first line of the docstring, with the types of ATen's schema. Types become MindSpore's; one that has
no meaning for a caller becomes Any.
"""

from __future__ import annotations

import ast
import copy
import inspect
import pathlib
import re
from collections import defaultdict
from typing import Any

import torch

TORCH = pathlib.Path(torch.__file__).parent

# PyTorch's names of types, and those of the stubs (PRELUDE in stubs.py).
TYPES = {
    **{name: f"builtins.{name}" for name in ("bool", "bytes", "complex", "float", "int", "str", "tuple")},
    **{f"_{name}": f"builtins.{name}" for name in ("bool", "complex", "float", "int")},
    **{
        "List": "Sequence",
        "list": "Sequence",
        "Tuple": "builtins.tuple",
        "SymInt": "builtins.int",
        "dict": "builtins.dict",
    },
    **{name: name for name in ("Any", "Callable", "Iterable", "Literal", "Sequence", "Number", "None", "Tensor")},
    **{"number": "Number", "dtype": "Dtype", "_dtype": "Dtype", "_size": "Sequence[builtins.int]"},
    **{f"_size_{count}_t": "builtins.int | Sequence[builtins.int]" for count in ("any", 1, 2, 3)},
    **{f"_ratio_{count}_t": "builtins.float | Sequence[builtins.float]" for count in ("any", 1, 2, 3)},
}

# Arguments that take more than PyTorch says: its functions in Python call a dtype an int, and the sizes of interpolate
# are one for all dimensions or one for each; rates may be MindSpore's.
ANYWHERE = {
    "dtype": ast.parse("dtype | None", mode="eval").body,
    "size": ast.parse("_size_any_t | None", mode="eval").body,
    "scale_factor": ast.parse("_ratio_any_t | None", mode="eval").body,
    "lr": ast.Name("Any"),
}


def signatures(name: str, function: Any, stub: dict[str, list[ast.FunctionDef]]) -> list[ast.FunctionDef]:
    """The overloads of a function or class, as functions named `call`.

    Args:
        name: the function's in its namespace.
        function: PyTorch's.
        stub: what PyTorch's stub has, by name.
    """
    own, stubs = _of_python(function), copy.deepcopy(stub.get(name, []))
    for node in stubs:
        _fill(node.args, {} if own is None else _defaults(own.args))
    return [_translated(node) for node in stubs or [own or _of_docstring(function)]]


def _defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    """The defaults of arguments, by their names."""
    with_default = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    found = {argument.arg: value for argument, value in zip(with_default, arguments.defaults, strict=True)}
    for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.update({argument.arg: value} if value else {})
    return found


def _fill(arguments: ast.arguments, known: dict[str, ast.expr]) -> None:
    """Give arguments that a stub calls optional, without a value, the defaults that are known."""
    with_default = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    pairs = zip(with_default, arguments.defaults, strict=True)
    arguments.defaults = [known.get(argument.arg, value) for argument, value in pairs]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    arguments.kw_defaults = [value and known.get(argument.arg, value) for argument, value in named]


def of_stub(path: str, of_class: str | None = None) -> dict[str, list[ast.FunctionDef]]:
    """The functions in one of PyTorch's stubs, or the methods of a class in it, by name; none if there is no such."""
    file = TORCH / path
    tree: Any = ast.parse(file.read_text()) if file.exists() else ast.Module([], [])
    if of_class:
        tree = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == of_class)
    found = defaultdict(list)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name].append(node)
    return found


def summary(function: Any) -> str:
    """The first paragraph of a docstring, without the signature that PyTorch's C++ functions have on top."""
    text = inspect.cleandoc(function.__doc__ or "")
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    return next((part for part in paragraphs if part and not re.match(r"[\w.]+\(.*\) *->|\.\. ", part)), "")


def _of_python(function: Any) -> ast.FunctionDef | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    parameters = [
        parameter.replace(default=_Text.of_default(parameter.default), annotation=_Text.of_type(parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    returns = _Text.of_type(signature.return_annotation)
    return _parsed(str(inspect.Signature(parameters, return_annotation=returns)))


def _of_docstring(function: Any) -> ast.FunctionDef:
    match = re.match(r"\s*[\w.]+\((.*?)\) *->(.*)", function.__doc__ or "")
    found = _parsed(f"({match[1]})") if match else None
    if match is None or found is None:
        return _function("(*args, **kwargs)")
    _annotate(found.args, function.__name__)
    returns = re.sub(r"\w*Tensor", "Tensor", match[2]).strip().replace("(", "tuple[").replace(")", "]")
    with_results = _parsed(f"() -> {returns}") if "Tensor" in returns else None
    found.returns = with_results.returns if with_results else None
    return found


def _annotate(arguments: ast.arguments, name: str) -> None:
    """Give arguments the types of ATen's operator of the name, if that has one overload."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or [overload for overload in packet.overloads() if "out" not in overload] != ["default"]:
        return
    types = {argument.name: str(argument.type) for argument in packet.default._schema.arguments}
    for argument in [*arguments.args, *arguments.kwonlyargs]:
        text = types.get("self" if argument.arg == "input" else argument.arg, "").replace("List[int]", "_size_any_t")
        argument.annotation = argument.annotation or (ast.parse(text, mode="eval").body if text else None)


class _Text:
    """What a signature prints as this text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    @staticmethod
    def of_default(value: Any) -> Any:
        if value is inspect.Parameter.empty:
            return value
        return _Text(repr(value) if _is_literal(repr(value)) else "...")

    @staticmethod
    def of_type(value: Any) -> Any:
        if value is inspect.Parameter.empty:
            return value
        return _Text(value if isinstance(value, str) else inspect.formatannotation(value))


def _parsed(text: str) -> ast.FunctionDef | None:
    try:
        return _function(text)
    except SyntaxError:
        return None


def _function(text: str) -> ast.FunctionDef:
    node = ast.parse(f"def call{text}: ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def _translated(node: ast.FunctionDef) -> ast.FunctionDef:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    for argument in filter(None, every):
        anywhere = None if argument is arguments.vararg else ANYWHERE.get(argument.arg)
        argument.annotation = _type(anywhere or argument.annotation)
    arguments.defaults = [_default(value) for value in arguments.defaults]
    arguments.kw_defaults = [value and _default(value) for value in arguments.kw_defaults]
    made = _function("()")
    made.args, made.returns = arguments, _type(node.returns)
    return made


def _default(value: ast.expr) -> ast.expr:
    return value if _is_literal(ast.unparse(value)) else ast.Constant(...)


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (SyntaxError, TypeError, ValueError):
        return False
    return True


def _type(node: ast.expr | None) -> ast.expr:
    """MindSpore's type for PyTorch's; Any if a part of it has no meaning."""
    text = "Any" if node is None else _type_text(node)
    return ast.parse(text, mode="eval").body


def _type_text(node: ast.expr) -> str:
    try:
        return _known(node)
    except KeyError:
        return "Any"


def _known(node: ast.expr) -> str:
    """Raises KeyError: it is not known."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return _known(ast.parse(node.value, mode="eval").body)
        names: dict[Any, str] = {None: "None", ...: "..."}
        return names[node.value]
    if isinstance(node, ast.BinOp):
        return _either(_known(node.left), _known(node.right))
    if isinstance(node, ast.List):
        return f"[{', '.join(map(_known, node.elts))}]"
    if not isinstance(node, ast.Subscript):
        return TYPES[_last_name(node)]
    name = _last_name(node.value)
    if name == "Literal":
        return f"Literal[{ast.unparse(node.slice)}]"
    inner = [_known(item) for item in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])]
    if name in ("Optional", "Union"):
        return _either(*inner, *(["None"] if name == "Optional" else []))
    return f"{TYPES[name]}[{', '.join(inner)}]"


def _either(*types: str) -> str:
    return " | ".join(dict.fromkeys(part for each in types for part in each.split(" | ")))


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]
