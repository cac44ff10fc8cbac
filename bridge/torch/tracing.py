"""Which one ATen call a PyTorch function comes to, found by running it on tensors without data.

PyTorch's own Python and its own argument parser decide: `interpolate` becomes one of nine overloads, `softmax` without
a dimension chooses one. A composite operator counts as one call, because inference mode hands it over whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bridge.call.arguments import Binder, TensorMark
from bridge.call.torch_call import flat
from bridge.infer import data_dependent
from bridge.infer.trial import Spec
from bridge.op.encoding import Text
from bridge.op.overload import Overload, overload
from bridge.op.table import table


class WritesArgument(ValueError):
    """The function changes one of its arguments."""


@dataclass(frozen=True)
class Result:
    """A tensor that the call gives."""

    position: int


@dataclass(frozen=True)
class Given:
    """One of the function's own tensors."""

    position: int


@dataclass(frozen=True)
class OneCall:
    """What a function comes to with some arguments.

    Args:
        op, text: the call; None if the function calls nothing.
        count: how many tensors the function has.
        inputs: which of them the call takes, in its order.
        form: what the function returns: containers, values, and a Result or Given for each tensor.
        same: whether that is what the call returns.
    """

    op: Overload | None
    text: Text | None
    count: int
    inputs: tuple[int, ...]
    form: Any
    same: bool


@dataclass(frozen=True)
class _Call:
    """A call that PyTorch makes."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any


class _Calls(TorchDispatchMode):
    """The calls that a function makes, with their results.

    A call whose results are views of all of a tensor gives that tensor, and is none: `broadcast_tensors` of equal
    shapes.
    """

    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.made: list[_Call] = []
        self._given = {tensor.untyped_storage()._cdata for tensor in given}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._refuse_writes(func, args, kwargs)
        unsized = _unsized(func)
        results = func(*args, **kwargs) if unsized is None else unsized
        itself = _without_views(results, flat([*args, *kwargs.values()]))
        if itself is not None:
            return itself
        self.made.append(_Call(func, args, kwargs, results))
        return results

    def _refuse_writes(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not func._schema.is_mutable:
            return
        for i, argument in enumerate(func._schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            if argument.is_write and any(t.untyped_storage()._cdata in self._given for t in flat(value)):
                raise WritesArgument(func.name())


def _unsized(func: Any) -> Any:
    """What stands for the results of a call whose shapes the data decides; None if they do not."""
    name = _name(func)
    if name is None or not data_dependent.always(overload(name)) or not overload(name).schema.gives_tensors:
        return None
    found = tuple(torch.empty(0) for _ in overload(name).schema.results)
    return found if len(found) > 1 else found[0]


def _name(func: Any) -> str | None:
    """The bridge's name of an overload; None if it does not have it."""
    name = func.name().removeprefix("aten::")
    return name if "skipped" not in table().get(name, {"skipped": ""}) else None


def _without_views(results: Any, arguments: Sequence[torch.Tensor]) -> Any:
    """The results with the arguments that they are views of; None if one of them is not such a view."""
    if isinstance(results, torch.Tensor):
        return next((each for each in arguments if _is_all_of(results, each)), None)
    if type(results) not in (list, tuple) or not results:
        return None
    found = [_without_views(result, arguments) for result in results]
    return None if any(each is None for each in found) else type(results)(found)


def _is_all_of(view: torch.Tensor, tensor: torch.Tensor) -> bool:
    return (
        view.untyped_storage()._cdata == tensor.untyped_storage()._cdata
        and (view.dtype, view.shape, view.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
        and view.storage_offset() == tensor.storage_offset()
        and (view.is_conj(), view.is_neg()) == (tensor.is_conj(), tensor.is_neg())
    )


def one_call(
    function: Callable[..., Any],
    specs: Sequence[Spec],
    arguments: Callable[[Sequence[torch.Tensor]], tuple[Sequence[Any], Mapping[str, Any]]],
) -> OneCall | None:
    """The one call that a function makes; None if it makes several, or one that the bridge does not have.

    Args:
        function: PyTorch's.
        specs: shape and dtype of each tensor among its arguments.
        arguments: gives the arguments with PyTorch tensors in their place.

    Raises:
        WritesArgument: the function changes an argument.
    """
    try:
        with torch.inference_mode(), torch.device("meta"):
            tensors = [torch.empty(shape, dtype=dtype) for shape, dtype in specs]
            args, kwargs = arguments(tensors)
            with _Calls(tensors) as calls:
                returned = function(*args, **kwargs)
    except WritesArgument:
        raise
    except Exception:  # it needs data, or refuses the arguments: PyTorch says so when it runs on the data
        return None
    if len(calls.made) > 1 or (not calls.made and not tensors):
        return None
    made = calls.made[0] if calls.made else None
    form = _form(returned, flat(made.results) if made else [], tensors)
    if form is None:
        return None
    if made is None:
        return OneCall(None, None, len(tensors), (), form, False)
    return _bound(made, tensors, form, _same(returned, made.results))


def _form(value: Any, made: list[torch.Tensor], given: list[torch.Tensor]) -> Any:
    """The form of what a function returns; None if it cannot be told from the call's results."""
    if isinstance(value, torch.Tensor):
        for kind, tensors in ((Result, made), (Given, given)):
            for i, tensor in enumerate(tensors):
                if tensor is value:
                    return kind(i)
        return None
    if isinstance(value, (list, tuple)):
        items = [_form(item, made, given) for item in value]
        return None if any(item is None for item in items) else (type(value), items)
    return (None, value) if value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype)) else None


def _bound(made: _Call, tensors: list[torch.Tensor], form: Any, same: bool) -> OneCall | None:
    name = _name(made.op)
    if name is None or (data_dependent.always(overload(name)) and _has_numbers(form)):
        return None
    marks = {id(tensor): TensorMark() for tensor in tensors}

    def marked(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return marks[id(value)]
        if isinstance(value, torch.device) and value.type == "meta":
            return None  # that of the tensors
        return [marked(item) for item in value] if isinstance(value, (list, tuple)) else value

    try:
        bound = Binder(overload(name), marked(made.args), {key: marked(v) for key, v in made.kwargs.items()}).bind()
    except (KeyError, TypeError):  # it takes a tensor that the function made, or a number that PyTorch took for one
        return None
    order = list(marks.values())
    inputs = tuple(order.index(mark) for mark in bound.tensors)
    return OneCall(bound.overload, bound.text, len(tensors), inputs, form, same)


def _has_numbers(form: Any) -> bool:
    """Whether a function returns something that may follow from the shapes of its results."""
    if isinstance(form, (Result, Given)):
        return False
    kind, items = form
    return items is not None if kind is None else any(map(_has_numbers, items))


def _same(returned: Any, results: Any) -> bool:
    """Whether two values are the same, or tuples of the same tensors."""
    if returned is results or isinstance(returned, torch.Tensor):
        return returned is results
    if type(returned) is not tuple or not isinstance(results, tuple) or len(returned) != len(results):
        return False
    return all(map(_same, returned, results))


def filled(form: Any, results: Sequence[Any], given: Sequence[Any], value: Callable[[Any], Any]) -> Any:
    """What a function returns, of this form.

    Args:
        results: the tensors that its call gives.
        given: its own tensors.
        value: makes a value of MindSpore's of one of PyTorch's.
    """
    if isinstance(form, Result):
        return results[form.position]
    if isinstance(form, Given):
        return given[form.position]
    kind, items = form
    if kind is None:
        return value(items)
    return made_of(kind, [filled(item, results, given, value) for item in items])


def made_of(kind: type, items: list[Any]) -> Any:
    """A container with these items: a list, a tuple, or a tuple with names as PyTorch's `max` returns."""
    if kind is tuple or kind is list or kind.__module__ == "torch.return_types":
        return kind(items)
    return kind(*items) if hasattr(kind, "_fields") else tuple(items)  # torch.Size
