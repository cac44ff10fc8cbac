"""Calls as Python source, because MindSpore's compiler reads the source of what it compiles."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import keyword
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from . import convert
from .calls import Call

_numbers = itertools.count()


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sources-")


def module_of(source: str, constants: Mapping[str, Any] | None = None) -> ModuleType:
    """A module with this source, in a file that stays as long as the process, and with these names beside it."""
    name = f"source_{next(_numbers)}"
    path = Path(_folder().name) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(str(path))
    module = importlib.util.module_from_spec(spec)
    vars(module).update(constants or {})
    sys.modules[name] = module  # MindSpore's compiler looks a function's module up by its name
    spec.loader.exec_module(module)
    return module


@dataclass
class WrittenCall:
    """A call as an expression over tensor parameters; what is neither a tensor nor a literal is a constant."""

    expression: str = ""
    tensors: list[Any] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> str:
        return ", ".join(f"t{i}" for i in range(len(self.tensors)))

    def module(self, source: str) -> ModuleType:
        """A module with functions that have the expression in them."""
        return module_of(f"import mindspore as ms\nfrom bridge import aten\n\n\n{source}", self.constants)

    def argument(self, value: Any) -> str:
        """The expression of one argument."""
        if isinstance(value, torch.Tensor):
            self.tensors.append(convert.to_ms(value))
            return f"t{len(self.tensors) - 1}"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self.argument, value))}]"
        if isinstance(value, torch.device):
            return repr(value.type)
        if isinstance(value, torch.layout):
            return "None"  # graphs cannot hold PyTorch objects, and this is the default
        constant = convert.argument(value)
        if constant is None or isinstance(constant, (bool, int, str)):
            return repr(constant)
        name = f"c{len(self.constants)}"
        self.constants[name] = constant
        return name


def write(call: Call) -> WrittenCall:
    written = WrittenCall()
    arguments = [*map(written.argument, call.args), *(f"{k}={written.argument(v)}" for k, v in call.kwargs.items())]
    packet, _, overload = call.overload.partition(".")
    overload = overload or "default"
    callee = f'getattr(aten.{packet}, "{overload}")' if keyword.iskeyword(overload) else f"aten.{packet}.{overload}"
    written.expression = f"{callee}({', '.join(arguments)})"
    return written
