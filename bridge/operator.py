"""The callable that users see: resolves the overload, finds the primitive and runs it, in both modes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
import torch

from bridge import _mindspore
from bridge._start import start_on
from bridge.call import in_program
from bridge.call.arguments import Bound, resolve
from bridge.call.results import arrange
from bridge.documentation import documented
from bridge.infer import data_dependent
from bridge.op import devices, dtypes
from bridge.op.overload import Overload, overload
from bridge.op.schema import label
from bridge.op.table import Device
from bridge.op.unknown_names import no_overload
from bridge.primitive import autocast, in_pytorch, precision
from bridge.primitive.aten import ATen
from bridge.primitive.composite import launch
from bridge.primitive.expression import expression
from bridge.primitive.graph_calls import add_lines, graph_call, users_lines
from bridge.primitive.kernel import keep, launch_again


class _Doc:
    """The docstring of a class, and that of an operator."""

    def __init__(self, of_class: str | None) -> None:
        self.of_class = of_class

    def __get__(self, instance: Operator | None, owner: type) -> str | None:
        return self.of_class if instance is None else documented(instance.name, instance.overloads)


class Operator(_mindspore.CompiledAsMethod):
    """An ATen operator by name, or one of its overloads.

    `aten.add` resolves its overload from the arguments as PyTorch does; `aten.add.Tensor` is that overload. On
    MindSpore's GPU both run PyTorch's CUDA kernel where there is one; `aten.add.on_cpu` and `aten.add.Tensor.on_cpu`
    run its CPU kernel.

    Raises:
        TypeError: the arguments fit no overload.
        ValueError, IndexError, RuntimeError: PyTorch refuses the shapes, dtypes or values, in its own words.
    """

    __doc__ = _Doc(__doc__)  # type: ignore[assignment]  # the one above

    def __init__(self, name: str, names: tuple[str, ...], wants_cpu: bool = False) -> None:
        self.name = name
        self._is_named(name)
        self.names = names
        self.wants_cpu = wants_cpu
        self._overloads: list[Overload] | None = None
        self._plans: dict[Any, Any] = {}
        self._undecided: dict[Any, _Undecided] = {}
        if len(names) > 1 or "." not in name:
            for full in names:
                overload = Operator(full, (full,), wants_cpu) if len(names) > 1 else self
                self.__dict__[full.partition(".")[2] or "default"] = overload

    @functools.cached_property
    def on_cpu(self) -> Operator:
        """The same operator, by PyTorch's CPU kernel whatever MindSpore's device is."""
        return Operator(self.name, self.names, wants_cpu=True)

    @property
    def overloads(self) -> list[Overload]:
        """The overloads to resolve among, in order."""
        if self._overloads is None:
            self._overloads = [overload(name) for name in self.names]
        return self._overloads

    def has_argument(self, name: str) -> bool:
        """Whether one of the overloads has an argument of this name."""
        return any(argument.name == name for op in self.overloads for argument in op.schema.arguments)

    def forget(self) -> None:
        """Forget all plans, because what they follow from has changed."""
        self._plans.clear()
        self._undecided.clear()
        for one in vars(self).values():
            if isinstance(one, Operator) and one is not self:
                one.forget()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(no_overload(self.name, name, self.names))

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.names, self.wants_cpu)

    def __deepcopy__(self, memo: dict[int, Any]) -> Operator:
        return self  # it has no state but what it has found out

    def __repr__(self) -> str:
        return f"<{label(self.name)}>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        tensors: list[Any] = []
        try:
            if kwargs:
                key = (argument_key(args, tensors), tuple(kwargs), argument_key(tuple(kwargs.values()), tensors))
            else:
                key = argument_key(args, tensors)
            plan = self._plans.get(key)
        except TypeError:  # an argument that cannot be hashed: resolution says what is wrong with it
            plan = key = None
        if plan is None or autocast.is_on() or (not tensors and in_program.is_inside()):
            return self._call_unplanned(args, kwargs, key, tensors)
        primitive, arranger = plan
        results = launch(primitive, tensors)
        return arranger(results) if arranger else results

    def _call_unplanned(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, tensors: list[Any]) -> Any:
        if in_program.is_inside():
            return self._call_in_program(args, kwargs, key, tensors)
        if key in self._undecided and not autocast.is_on():
            return self._undecided[key](tensors)
        bound = resolve(self.name, self.overloads, args, kwargs)
        autocast.refuse(bound.overload)
        device = devices.place(bound.overload, self.wants_cpu)
        start_on(device)
        if data_dependent.sometimes(bound.overload):
            undecided = _Undecided(bound, device)
            if bound.reusable:
                keep(self._undecided, key, undecided)
            return undecided(bound.tensors)
        if not bound.overload.has_kernel:
            return in_pytorch.call(bound, device)
        primitive = ATen(bound.overload.name, bound.text, device)
        arranger = _arranger(bound)
        if bound.reusable:
            keep(self._plans, key, (primitive, arranger))
        results = launch(primitive, bound.tensors)
        return arranger(results) if arranger else results

    def _call_in_program(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, tensors: list[Any]) -> Any:
        bound = self._plans.get((key, "in a program"))
        if bound is None:
            bound = in_program.bind(self.name, self.overloads, args, kwargs)
            tensors = [mark.tensor for mark in bound.tensors]
            if bound.reusable:
                bound.tensors = []
                keep(self._plans, (key, "in a program"), bound)
        return in_program.call(bound, tensors, devices.torch_name(devices.place(bound.overload, self.wants_cpu)))

    def _call_in_graph(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self._graph_call(args, kwargs)

    @functools.cached_property
    def _graph_call(self) -> Any:
        return graph_call(self.name, self.plan_in_graph)

    def plan_in_graph(
        self, args: list[Any], kwargs: dict[str, Any], product: Any = None, lines: str = "", again: Any = None
    ) -> Any:
        """The expression of a call with these arguments (bridge/primitive/graph_calls.py).

        A call whose inputs mixed precision may cast is planned again with what tells how
        (bridge/primitive/precision.py).

        Args:
            product: that, a tensor.
            lines: the user's lines, which MindSpore does not know any more then.
            again: the graph_call that plans the call again, if it is another's than the operator's own.
        """
        start_on(devices.target())
        bound = resolve(self.name, self.overloads, args, kwargs)
        autocast.refuse(bound.overload)
        return planned_in_graph(bound, self.wants_cpu, again or self._graph_call, product, lines)


class _Undecided:
    """A planned call that is a primitive or not by the shapes and dtypes of its inputs
    (bridge/infer/data_dependent.py)."""

    def __init__(self, bound: Bound, device: Device) -> None:
        self.overload = bound.overload
        self.text = bound.text
        self.device = device
        self.arranger = _arranger(bound)

    @functools.cached_property
    def primitive(self) -> ATen:
        return ATen(self.overload.name, self.text, self.device)

    def __call__(self, tensors: list[Any]) -> Any:
        inputs = [(tuple(x.shape), dtypes.to_torch(x.dtype)) for x in tensors]
        if data_dependent.reason(self.overload, self.text, inputs):
            return self._call_eagerly(tensors)
        results = launch(self.primitive, tensors)
        return self.arranger(results) if self.arranger else results

    def _call_eagerly(self, tensors: list[Any]) -> Any:
        return in_pytorch.call(Bound(self.overload, tensors, self.text, True), self.device)


def planned_in_graph(bound: Bound, wants_cpu: bool, graph_call: Any, product: Any, lines: str) -> Any:
    """The expression of a bound call.

    Args:
        graph_call: plans the call anew from the arguments (args, kwargs, product, lines).
        product, lines: see Operator.plan_in_graph.
    """
    reason = in_pytorch.without_kernel(bound.overload)
    if reason:
        raise RuntimeError(f"{label(bound.overload.name)} works in PyNative mode only: {reason}")
    floating = precision.listed_dtypes(bound)
    if not floating or not _mindspore.auto_levels().exist():
        return expression(bound, wants_cpu)
    if product is None:
        if len(floating) == 1:  # casts change no shape: what is wrong is found here
            expression(bound, wants_cpu)
        lines = users_lines() if len(floating) > 1 else ""
        return precision.with_product(graph_call, 2, lines)
    bound.tensors = precision.cast_in_graph(bound, product.dtype)
    try:
        return expression(bound, wants_cpu)
    except Exception as error:
        add_lines(error, lines)
        raise


class Prepared(NamedTuple):
    """Makes a bound call in PyNative mode, on tensors that it is given.

    Attributes:
        call: makes it.
        again: the same in less time, or None: for tensors of other shapes or dtypes than those of the first call.
    """

    call: Callable[[list[Any]], Any]
    again: Callable[[list[Any]], Any]


def prepared(bound: Bound, device: Device) -> Prepared:
    """What makes a bound call in PyNative mode."""
    if data_dependent.sometimes(bound.overload):
        return Prepared(_Undecided(bound, device), never)
    if not bound.overload.has_kernel:
        return Prepared(
            lambda tensors: in_pytorch.call(Bound(bound.overload, tensors, bound.text, True), device), never
        )
    primitive, arranger = ATen(bound.overload.name, bound.text, device), _arranger(bound)
    if arranger is not None:
        return Prepared(lambda tensors: arranger(launch(primitive, tensors)), never)
    can_launch_again = primitive.has_direct and not primitive.composite
    return Prepared(
        functools.partial(launch, primitive),
        functools.partial(launch_again, primitive) if can_launch_again else never,
    )


def never(tensors: list[Any]) -> None:
    """Prepared.again where there is nothing that takes less time."""


def argument_key(values: Any, tensors: list[Any]) -> Any:
    """What of some arguments decides the plan; the tensors among them are collected.

    1, 1.0 and True are different keys, and so are 0.0 and -0.0.
    """
    key: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is ms.Tensor or kind is _mindspore.ParameterTensor:
            tensors.append(value)
            key.append(ms.Tensor)
        elif kind is float:
            key.append(value.hex())
            key.append(kind)
        elif isinstance(value, (list, tuple)):
            key.append(argument_key(value, tensors))
        elif isinstance(value, (complex, np.generic)):
            key.append(repr(value))
            key.append(kind)
        elif isinstance(value, (ms.Tensor, torch.Tensor)):
            tensors.append(value)
            key.append(ms.Tensor if isinstance(value, ms.Tensor) else torch.Tensor)
        else:
            key.append(value)
            key.append(kind)
    return tuple(key)


def _arranger(bound: Bound) -> Any:
    """The function that brings a primitive's flat results into the overload's form; None if they are in it."""
    return functools.partial(arrange, bound.overload.name, bound.text) if bound.overload.nested else None
