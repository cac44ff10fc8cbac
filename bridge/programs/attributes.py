"""What a module keeps for its next call elsewhere than in parameters and persistent buffers. A graph is captured once,
and would go on with what stood there at that time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

_CONTAINERS = (list, dict, set)
_PLAIN = (bool, int, float, complex, str, set)
# The dictionaries that a graph knows, and the mode, which belongs to the plan.
_KNOWN = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"}


@dataclass
class _Attribute:
    """An attribute of a module.

    Args:
        value: what it was.
        content: a copy of a container; else the value.
    """

    value: Any
    content: Any


class Attributes:
    """The attributes of modules and of their parts, as they are now."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        parts = [(type(root).__name__, *part) for root in modules for part in root.named_modules()]
        self._before = [(f"{name}.{path}".rstrip("."), part, _attributes(part)) for name, path, part in parts]

    def changed(self) -> list[str]:
        """The names of those that are others now."""
        return [f"{path}.{key}" for path, module, before in self._before for key in _changed(before, _kept(module))]

    def restore_caches(self, is_constant: Callable[[torch.Tensor, set[int]], bool]) -> None:
        """Have what the next call would compute again be as it was: a table of positions, say, with its length."""
        for _, module, before in self._before:
            now = _kept(module)
            changed = {key: _tensors(now.get(key)) for key in _changed(before, now)}
            own = {id(leaf) for key in changed if key in before for leaf in _tensors(before[key].content)}
            others = {key for key, tensors in changed.items() if not all(is_constant(leaf, own) for leaf in tensors)}
            if any(changed[key] for key in changed.keys() - others):
                _restore(module, before, changed.keys() - others)

    def restore(self) -> None:
        """Have the modules be as they were: a capture computes nothing that may stay."""
        for _, module, before in self._before:
            _restore(module, before, list(_changed(before, _kept(module))))


def _restore(module: torch.nn.Module, before: dict[str, _Attribute], names: Iterable[str]) -> None:
    for key in names:
        holder = module._buffers if key in module._non_persistent_buffers_set else vars(module)
        if key in before:
            holder[key] = _refilled(before[key])
        else:
            del holder[key]


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _attributes(module: torch.nn.Module) -> dict[str, _Attribute]:
    return {
        key: _Attribute(value, value.copy() if type(value) in _CONTAINERS else value)
        for key, value in _kept(module).items()
    }


def _kept(module: torch.nn.Module) -> dict[str, Any]:
    unknown = {key: module._buffers.get(key) for key in module._non_persistent_buffers_set}
    return {**{key: value for key, value in vars(module).items() if key not in _KNOWN}, **unknown}


def _changed(before: dict[str, _Attribute], now: dict[str, Any]) -> Iterator[str]:
    for key in sorted(before.keys() | now.keys()):
        if key not in before or key not in now or not _is_same(before[key].content, now[key]):
            yield key


def _is_same(before: Any, now: Any) -> bool:
    """Whether two values are one, plain and equal, or containers of such values."""
    if before is now:
        return True
    if type(before) is not type(now):
        return False
    if isinstance(before, dict):
        return before.keys() == now.keys() and all(_is_same(before[key], now[key]) for key in before)
    if isinstance(before, (list, tuple)):
        return len(before) == len(now) and all(map(_is_same, before, now))
    return isinstance(before, _PLAIN) and bool(before == now)


def _refilled(attribute: _Attribute) -> Any:
    """The value; if it is a container, with what it had."""
    value, content = attribute.value, attribute.content
    if isinstance(value, list) and value is not content:
        value[:] = content
    elif isinstance(value, (dict, set)) and value is not content:
        value.clear()
        value.update(content)
    return value
