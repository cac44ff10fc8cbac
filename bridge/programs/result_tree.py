"""The form of what a function returns: as JSON, and as an expression of a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from mindspore.ops.functional import make_dict, make_list

from bridge.primitive.graph_calls import Call
from bridge.programs.calls import Refusal, in_lines
from bridge.programs.data_floats import DataFloat, DataInteger


class NotReturned(Refusal):
    """A graph cannot return what a function gives.

    Args:
        kind: its class.
    """

    def __init__(self, kind: type) -> None:
        self.kind = kind
        super().__init__(f"a graph cannot return an object of {kind.__name__}")

    def advise(self, name: str) -> None:
        """Say whose result it is, and what to return in its place."""
        self.args = (
            f"{name}: a graph cannot return an object of {self.kind.__module__}.{self.kind.__qualname__}: return its "
            "tensors, numbers, strings and None, by themselves or in tuples, lists, dictionaries and dataclasses"
            f"{in_lines(self)}",
        )


def flatten(value: Any, tensors: list[torch.Tensor], left_out: list[str]) -> Any:
    """The form of a value, whose tensors are appended to `tensors`.

    A dataclass becomes a dictionary, because a graph can return no other objects. A dictionary is without what a graph
    cannot return, of which `left_out` tells: a model of transformers returns the cache of its keys and values, too.
    """
    if type(value) in (DataFloat, DataInteger):
        value = value.tensor
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return ["tensor", len(tensors) - 1]
    if isinstance(value, Mapping) and all(map(_can_be_key, value)):
        return _dictionary(value.items(), tensors, left_out)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return _dictionary(((name, item) for name, item in fields if item is not None), tensors, left_out)
    if isinstance(value, (tuple, list)):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, [flatten(item, tensors, left_out) for item in value]]
    if value is None or isinstance(value, (bool, int, float, str)):
        return ["value", value]
    raise NotReturned(type(value))


def _dictionary(items: Iterable[tuple[Any, Any]], tensors: list[torch.Tensor], left_out: list[str]) -> Any:
    entries = []
    for key, item in items:
        count = len(tensors)
        try:
            entries.append([flatten(key, [], []), flatten(item, tensors, left_out)])
        except Refusal as refusal:
            del tensors[count:]
            left_out.append(f"{refusal}, so its result has no {key!r}")
    return ["dict", entries]


def _can_be_key(key: Any) -> bool:
    return all(map(_can_be_key, key)) if isinstance(key, tuple) else isinstance(key, (bool, int, float, str))


def has_tensors(form: Any) -> bool:
    """Whether there is a tensor in a value of this form."""
    kind, content = form
    if kind == "dict":
        return any(has_tensors(item) for _, item in content)
    return kind == "tensor" or (kind in ("list", "tuple") and any(map(has_tensors, content)))


def expression(form: Any, tensors: Sequence[Any]) -> Any:
    """The expression of a value (bridge/primitive/graph_calls.py), with these in place of its tensors."""
    kind, content = form
    if kind == "tensor":
        return tensors[content]
    if kind == "value":
        return content
    if kind == "dict":
        keys = tuple(expression(key, tensors) for key, _ in content)
        return Call(make_dict, [keys, tuple(expression(item, tensors) for _, item in content)])
    items = tuple(expression(item, tensors) for item in content)
    return Call(make_list, items) if kind == "list" else items
