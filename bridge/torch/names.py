"""What each of PyTorch's namespaces has for bridge.torch, made from the installed PyTorch."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from bridge import aten
from bridge.op.dtypes import MINDSPORE_FROM_TORCH
from bridge.op.table import packets
from bridge.operator import Operator
from bridge.torch import torchscript
from bridge.torch.elsewhere import Elsewhere
from bridge.torch.function import Function
from bridge.torch.reasons import reason
from bridge.torch.to import To

_METHOD = type(torch.Tensor.add)
# Methods whose arguments PyTorch does not take by its generated parser.
_PARSED_BY_HAND = {"contiguous", "dim", "is_contiguous", "item", "size", "storage_offset", "stride", "to"}
# Those that give a dtype, which ATen's schemas call an int.
_GIVE_DTYPES = {"promote_types", "result_type"}
_CONSTANTS = {"e": math.e, "inf": math.inf, "nan": math.nan, "newaxis": None, "pi": math.pi}
# Objects of PyTorch's that its functions take as arguments.
_ARGUMENTS = (torch.memory_format, torch.layout)
_CLASSES = {"device": torch.device, "Generator": torch.Generator, "Size": tuple}


def _operator(function: Any, kind: type) -> Operator | None:
    """The ATen operator that PyTorch's C++ calls under the name of the function."""
    name = function.__name__
    if not isinstance(function, kind) or name not in packets() or name in _PARSED_BY_HAND | _GIVE_DTYPES:
        return None
    return vars(aten)[name]


def functions(namespace: ModuleType) -> dict[str, Function]:
    """The functions of one of PyTorch's namespaces."""
    found = {}
    for name in dir(namespace):
        value, full = getattr(namespace, name), f"{namespace.__name__}.{name}"
        if name.startswith("_") or not isinstance(value, (BuiltinFunctionType, FunctionType)) or reason(full):
            continue
        found[name] = Function(full, value, _operator(value, BuiltinFunctionType))
    return found


def methods(taken: Iterable[str]) -> dict[str, Function]:
    """The methods of PyTorch's tensors as functions, without those of these names."""
    found = {}
    for name in dir(torch.Tensor):
        value, full = getattr(torch.Tensor, name), f"torch.Tensor.{name}"
        if name.startswith("_") or name in taken or not isinstance(value, (_METHOD, FunctionType)) or reason(full):
            continue
        made = To if name == "to" else Function
        found[name] = made(full, value, _operator(value, _METHOD))
    return found


def values() -> dict[str, Any]:
    """What is no function in the namespace torch: dtypes, constants, and what functions take as arguments."""
    found: dict[str, Any] = {**_CONSTANTS, **_CLASSES}
    for name, value in vars(torch).items():
        if isinstance(value, torch.dtype) and value in MINDSPORE_FROM_TORCH:
            found[name] = MINDSPORE_FROM_TORCH[value]
        elif isinstance(value, _ARGUMENTS) and not reason(f"torch.{name}"):
            found[name] = value
    return found


def elsewhere(namespace: ModuleType) -> dict[str, Elsewhere]:
    """Stands for what one of PyTorch's namespaces has and MindSpore has elsewhere."""
    found = {}
    for name in dir(namespace):
        full = f"{namespace.__name__}.{name}"
        if not name.startswith("_") and reason(full):
            found[name] = Elsewhere(full, reason(full), getattr(namespace, name))
    if namespace is torch:
        vars(found["jit"]).update(torchscript.names(found["jit"].script))
    return found


def missing(namespace: str, name: str, known: Mapping[str, Any]) -> Any:
    """What stands for a name that bridge.torch does not have.

    Args:
        namespace: as in "torch.nn.functional".
        name: the name in it.
        known: what the namespace has in bridge.torch.

    Raises:
        AttributeError: PyTorch does not have the name either, or it is about PyTorch's insides.
    """
    full = f"{namespace}.{name}"
    sentence = reason(full) or reason(f"torch.Tensor.{name}")
    if sentence and not name.startswith("_"):
        return Elsewhere(full, sentence)
    raise AttributeError(f"bridge.{namespace} has no {name!r}{_hint(name, known)}")


def absent(package: str, name: str, known: Iterable[str], theirs: ModuleType) -> AttributeError:
    """What to raise for a name that a package of the bridge's does not have.

    Args:
        package: as in "bridge.nn".
        name: the name in it.
        known: what it has.
        theirs: PyTorch's package of that name.
    """
    if hasattr(theirs, name):
        sentence = (
            reason(f"{theirs.__name__}.{name}") or f"it is a part of {theirs.__name__} that serves PyTorch itself"
        )
        return AttributeError(f"{package} has no {name}: {sentence}")
    nor = f"and neither has the installed {theirs.__name__} {torch.__version__}"
    return AttributeError(f"{package} has no {name}, {nor}{_hint(name, known)}")


def _hint(name: str, known: Iterable[str]) -> str:
    alike = difflib.get_close_matches(name, known)
    return f": did you mean {' or '.join(alike)}?" if alike else ""


def is_public_function(namespace: Any, name: str) -> bool:
    """Whether a name of one of PyTorch's namespaces is a public function."""
    value = getattr(namespace, name)
    return not name.startswith("_") and isinstance(value, (BuiltinFunctionType, FunctionType, _METHOD))
