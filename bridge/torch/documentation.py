"""What `help` and `inspect.signature` say of a function of PyTorch's on MindSpore's tensors."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

from bridge.documentation import PAGES


class Documentation:
    """The function's signature and docstring, with a link to its page if it is PyTorch's."""

    def __init__(self, of_class: str | None) -> None:
        self.of_class = of_class

    def __get__(self, instance: Any, owner: type) -> str | None:
        if instance is None:
            return self.of_class
        text = inspect.getdoc(instance.function) or ""
        found = signature(instance.function)
        if found is not None and not _on_top(text):
            text = f"{instance.function.__name__}{found}\n\n{text}"
        if not instance.__name__.startswith("torch."):
            return text
        return f"{text.rstrip()}\n\n{PAGES}/{instance.__name__}.html".lstrip()


class Signature:
    """The function's signature, for inspect.signature."""

    def __get__(self, instance: Any, owner: type) -> inspect.Signature:
        found = None if instance is None else signature(instance.function)
        if found is None:
            raise AttributeError("__signature__")
        return found


def signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Of a function in Python; or of one in C++ as the first line of its docstring has it, if it has."""
    try:
        return inspect.signature(function)
    except ValueError:
        match = _on_top(inspect.getdoc(function) or "")
    try:
        arguments: Any = ast.parse(f"lambda {match[1]}: 0", mode="eval").body if match else None
    except SyntaxError:
        arguments = None
    return None if arguments is None else inspect.Signature(_parameters(arguments.args))


def _on_top(text: str) -> re.Match[str] | None:
    return re.match(r"[\w.]+\((.*)\) *->", text)


def _parameters(arguments: ast.arguments) -> list[inspect.Parameter]:
    plain = [*[None] * (len(arguments.args) - len(arguments.defaults)), *arguments.defaults]
    kind = inspect.Parameter
    found = [_parameter(*pair, kind.POSITIONAL_OR_KEYWORD) for pair in zip(arguments.args, plain, strict=True)]
    if arguments.vararg:
        found.append(_parameter(arguments.vararg, None, kind.VAR_POSITIONAL))
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [*found, *(_parameter(*pair, kind.KEYWORD_ONLY) for pair in named)]


def _parameter(argument: ast.arg, default: ast.expr | None, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(
        argument.arg, kind, default=inspect.Parameter.empty if default is None else _value(default)
    )


def _value(node: ast.expr) -> Any:
    """What is written for a default; its text if it is a name of PyTorch's."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
