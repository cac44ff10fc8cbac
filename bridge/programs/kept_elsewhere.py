"""Tensors that a function leaves elsewhere than in its modules' attributes: in a table of its file, a class, an object,
an attribute or default argument of a function, or `functools.lru_cache`. PyTorch's next call finds data there, and a
capture's tensors have none."""

from __future__ import annotations

import contextlib
import functools
import gc
import pathlib
import re
import sysconfig
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import mindspore as ms
import torch
from torch._subclasses.fake_tensor import FakeTensor

from bridge.programs.written_down import is_of_package

# A table of more entries is a user's data, and so is what lies deeper in others, and what comes after so many entries.
LARGE = 10_000
DEEP = 20
MOST = 50_000
_FOREIGN = tuple(f"{folder}/" for folder in (*torch.__path__, *ms.__path__, pathlib.Path(__file__).parents[1]))
_LAYERS = f"{pathlib.Path(torch.__file__).parent}/nn/modules/"
_PYTHON = (f"{sysconfig.get_path('stdlib')}/", "<frozen ")
_INSTALLED = re.compile("/(site|dist)-packages/")  # in Python's folder, but not of it


@functools.lru_cache(maxsize=4096)
def is_own(file: str) -> bool:
    """Whether a file is neither PyTorch's nor MindSpore's nor the bridge's nor Python's."""
    return not file.startswith(_FOREIGN) and (not file.startswith(_PYTHON) or bool(_INSTALLED.search(file)))


def is_layers(file: str) -> bool:
    """Whether a file has layers of torch.nn."""
    return file.startswith(_LAYERS)


def held_by(dictionary: dict[Any, Any]) -> dict[Any, Any]:
    """What a dictionary holds, in its order. A class of a package is not asked, nor one that raises an error:
    transformers' import all models."""
    kind = type(dictionary)
    if _is_usual(kind):
        return dictionary
    if not is_of_package(kind.__module__):
        with contextlib.suppress(Exception):
            return dict(dictionary.items())
    usual = OrderedDict if issubclass(kind, OrderedDict) else dict
    return {key: dict.__getitem__(dictionary, key) for key in usual.__iter__(dictionary)}


@functools.cache
def _is_usual(kind: type) -> bool:
    return all(
        any(getattr(kind, name) is getattr(usual, name) for usual in (dict, OrderedDict))
        for name in ("__len__", "__getitem__", "__iter__", "keys", "values", "items")
    )


class KeptElsewhere:
    """What a capture leaves.

    Args:
        is_from: whether a tensor is this capture's.
        data_of: gives the data of such a tensor; None if it is not the same in each call.

    Attributes:
        unknown: the names of what is not the same in each call.
        cached: those of it that are results of cached functions.
    """

    def __init__(
        self, is_from: Callable[[torch.Tensor], bool], data_of: Callable[[torch.Tensor], torch.Tensor | None]
    ) -> None:
        self._is_from = is_from
        self._data_of = data_of
        self._files: set[str] = set()
        self._seen: set[int] = set()
        self._depth = 0
        self._left = MOST
        self._places: list[tuple[Any, Any]] = []
        self.unknown: list[str] = []
        self.cached: list[str] = []

    def give_data(self, namespaces: Iterable[dict[str, Any]]) -> None:
        """Have what is the same in each call be what PyTorch would have left in the namespaces of some files."""
        for namespace in namespaces:
            name = namespace.get("__name__")
            if name is None:  # of a text that was executed
                continue
            self._files.add(name)
            self._fill(namespace, name, name)

    def give_data_in(self, modules: Iterable[torch.nn.Module]) -> None:
        """The same for objects of these files that modules hold."""
        for part in (part for module in modules for part in module.modules()):
            for key, value in vars(part).items():
                file = value.__module__ if isinstance(value, FunctionType) else type(value).__module__
                if file in self._files:
                    self._filled(value, file, f"{type(part).__name__}.{key}")

    def forget(self) -> None:
        """Leave nothing that has no data."""
        for holder, key in self._places:
            if isinstance(holder, list):
                holder[:] = [item for item in holder if next(_tensors(item), None) is None]
            elif isinstance(holder, type):
                setattr(holder, key, None)
            elif "__name__" in holder:  # of a file
                holder[key] = None
            else:
                holder.pop(key, None)

    def _fill(self, holder: Any, module: str, name: str) -> None:
        """Put data into a dictionary, list or class."""
        items = vars(holder) if isinstance(holder, type) else held_by(holder) if isinstance(holder, dict) else holder
        if self._depth == DEEP or self._left < len(items):
            return
        self._depth += 1
        self._left -= len(items)
        for key, value in list(enumerate(items) if isinstance(items, list) else items.items()):
            before = len(self.unknown)
            filled = self._filled(value, module, f"{name}.{key}")
            if len(self.unknown) > before and isinstance(value, (torch.Tensor, tuple)):
                self._places.append((holder, key))
            if filled is not value:
                if isinstance(holder, type):
                    setattr(holder, key, filled)
                else:
                    holder[key] = filled
        self._depth -= 1

    def _filled(self, value: Any, module: str, name: str) -> Any:
        """The value with data in the place of tensors that have none."""
        if isinstance(value, FakeTensor):
            return self._with_data(value, name)
        if isinstance(value, tuple) and (type(value) is tuple or hasattr(value, "_fields")):
            filled = [self._filled(item, module, name) for item in value]
            is_same = all(one is other for one, other in zip(filled, value, strict=True))
            return value if is_same else type(value)(*filled) if hasattr(value, "_fields") else tuple(filled)
        if id(value) in self._seen:
            return value
        if isinstance(value, functools._lru_cache_wrapper):
            self._clear(value, name)
        elif isinstance(value, (dict, list, SimpleNamespace)):
            self._seen.add(id(value))
            items = vars(value) if isinstance(value, SimpleNamespace) else value
            if len(held_by(items) if isinstance(items, dict) else items) <= LARGE:
                self._fill(items, module, name)
        elif _is_of(value, module):
            self._seen.add(id(value))
            self._fill(value if isinstance(value, type) else vars(value), module, name)
            if isinstance(value, FunctionType):
                for content in _contents(value):
                    self._filled(content, module, name)
        return value

    def _with_data(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        if not self._is_from(tensor):
            return tensor
        data = self._data_of(tensor)
        if data is None:
            self.unknown.append(name)
        return tensor if data is None else data

    def _clear(self, function: Any, name: str) -> None:
        """Have a function forget its results if tensors without data are among them."""
        found = list(filter(self._is_from, _tensors(gc.get_referents(function))))
        if found:
            function.cache_clear()
        if any(self._data_of(tensor) is None for tensor in found):
            self.cached.append(name)


def _is_of(value: Any, module: str) -> bool:
    """Whether a value is a function, a class or an object of a file. bridge/programs/attributes.py knows modules."""
    if isinstance(value, (torch.nn.Module, ms.nn.Cell, ModuleType)):
        return False
    return getattr(value, "__module__", None) == module and hasattr(value, "__dict__")


def _contents(function: FunctionType) -> Iterator[Any]:
    """A function's default arguments, and the variables that it has from around it, but for those that were never
    set."""
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, FakeTensor):
        yield value
    elif type(value) in (list, tuple, dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)
