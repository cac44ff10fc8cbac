"""A function of PyTorch's on MindSpore's tensors.

What PyTorch's C++ has under ATen's name goes straight to that operator of the bridge. What is written in Python runs
once on tensors without data, for each form, shape and dtype of its arguments: it goes to the one operator that it comes
to (bridge/torch/tracing.py). Everything else, and every call that an operator refuses, is run by PyTorch itself as a
program (bridge/programs): it has the right results, or the right words.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge._start import start_on
from bridge.call import in_program
from bridge.call.arguments import Bound
from bridge.op import devices, dtypes
from bridge.operator import Operator, Prepared, argument_key, never, planned_in_graph, prepared
from bridge.primitive import autocast, in_pytorch
from bridge.primitive.graph_calls import graph_call
from bridge.primitive.kernel import keep
from bridge.programs import tree
from bridge.programs.program import Program
from bridge.programs.refusals import refuse_cut_gradients
from bridge.torch import in_graph, in_place, keywords
from bridge.torch.documentation import Documentation, Signature
from bridge.torch.tracing import OneCall, WritesArgument, filled, one_call


class Function(_mindspore.CompiledAsMethod):
    """A function of PyTorch's, or a method of its tensors, called with MindSpore's tensors.

    Args:
        name: as in "torch.nn.functional.relu".
        function: PyTorch's.
        operator: the ATen operator that its C++ calls under the same name, if it is one.
    """

    __doc__ = Documentation(__doc__)  # type: ignore[assignment]  # the one above
    __signature__ = Signature()

    def __init__(self, name: str, function: Callable[..., Any], operator: Operator | None = None) -> None:
        self._is_named(name)
        self.function = function
        self.operator = operator
        # `max(x, 0).values`: the tuple with names that PyTorch returns.
        self._named = getattr(torch.return_types, getattr(function, "__name__", ""), None)
        self._plans: dict[Any, _Plan] = {}
        self._latest: dict[Any, _Plan] = {}  # by what is cheaper to find: a shape or dtype of MindSpore's hashes slowly
        _all.add(self)

    @staticmethod
    def forget_all() -> None:
        """Have all functions forget their plans, because what these follow from has changed."""
        for function in _all:
            function._plans.clear()
            function._latest.clear()
            if function.operator is not None:
                function.operator.forget()

    def __deepcopy__(self, memo: dict[int, Any]) -> Function:
        return self

    def __reduce__(self) -> Any:
        return type(self), (self.__name__, self.function, self.operator)

    def __repr__(self) -> str:
        return f"<{self.__name__} on MindSpore's tensors>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if kwargs and not keywords.TRANSLATED.isdisjoint(kwargs):
            kwargs = keywords.translated(self.__name__, kwargs, self.operator)
        if in_program.is_inside():
            return self._call_in_program(args, kwargs)
        if autocast.is_on():
            return self._by_pytorch(args, kwargs)
        try:
            if self.operator is not None:
                results = self.operator(*args, **kwargs)
                return results if self._named is None or type(results) is not tuple else self._named(results)
            tensors: list[Any] = []
            form = argument_key(args, tensors)
            if kwargs:
                form = form, tuple(kwargs), argument_key(kwargs.values(), tensors)
            plan = self._latest.get(form)
            if plan is not None and (results := plan.again(tensors)) is not None:
                return results
            specs: list[Any] = []
            for x in tensors:  # a comprehension takes longer
                specs.append(x.shape)
                specs.append(x.dtype)
            if plan is None or plan.specs != specs:
                plan = self._plan(form, specs, args, kwargs)
            if plan.call is not None:
                return plan.call(tensors)
        except Exception as error:
            return self._after(error, args, kwargs)
        return self._by_pytorch(args, kwargs)

    def _by_pytorch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call as PyTorch runs it."""
        self._refuse_differentiated(args, kwargs)
        return self.program(*args, **kwargs)

    def _refuse_differentiated(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        instead = f"calls PyTorch's own {self.__name__}"
        refuse_cut_gradients(f"the bridge's {self.__name__}", (*args, *kwargs.values()), instead)

    def _call_in_program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call inside a fused program, whose tensors are PyTorch's."""
        given = tree.arguments(args, kwargs)
        if given.tensors:
            raise TypeError(
                f"{self.__name__}: inside bridge.fuse all tensors are PyTorch's, and one of these is MindSpore's: a "
                f"MindSpore operator has made it, or {in_program.ELSEWHERE}"
            )
        positional, named = given.with_tensors([])
        return _to_mindspore(self.function(*positional, **named))

    def _plan(self, form: Any, specs: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Plan:
        """What these arguments come to, which is the latest of their form from here on."""
        key = form, *specs
        plan = self._plans.get(key)
        if plan is None:
            found = self._prepared(args, kwargs)
            plan = _Plan(specs, found and found.call, found.again if found else never)
            keep(self._plans, key, plan)
        keep(self._latest, form, plan)
        return plan

    def _prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Prepared | None:
        """What these arguments come to, called with their tensors; None if only PyTorch can tell."""
        given = tree.arguments(args, kwargs)
        specs = [(tuple(x.shape), dtypes.to_torch(x.dtype)) for x in given.tensors]
        try:
            found = self.one_call(specs, lambda tensors: given.with_tensors(list(tensors)))
        except WritesArgument:
            others = tree.arguments(*self._not_in_place(args, kwargs))
            return Prepared(lambda tensors: self._called(others.with_tensors(tensors)), never)
        return None if found is None else _prepared(found)

    def _called(self, arguments: tuple[Any, Any]) -> Any:
        args, kwargs = arguments
        return self(*args, **kwargs)

    def _not_in_place(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments with which the function returns a new tensor; in the handler of WritesArgument."""
        found = in_place.not_in_place(self.function, args, kwargs)
        if found is None:
            raise
        in_place.warn_of_new_tensors(self.__name__.rpartition(".")[2], stacklevel=6)
        return found

    def one_call(self, specs: Sequence[Any], arguments: Callable[..., Any]) -> OneCall | None:
        """See bridge.torch.tracing.one_call."""
        try:
            return one_call(self.function, specs, arguments)
        except WritesArgument:
            raise WritesArgument(
                f"{self.__name__} would change its argument: leave out what asks for that (`max_norm`); "
                "the function then returns a new tensor"
            ) from None

    def _after(self, refusal: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What PyTorch makes of arguments that an operator refused: its results, or its own error."""
        if isinstance(refusal, WritesArgument):
            raise refusal
        try:
            return self._by_pytorch(args, kwargs)
        except Exception as error:
            raise error from None

    @functools.cached_property
    def program(self) -> Program:
        """The function as PyTorch runs it."""
        on_gpu = devices.target() == "GPU"
        return Program(_on_gpu(self.function) if on_gpu else self.function, name=self.__name__)

    def _call_in_graph(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self._graph_call(args, kwargs)

    @functools.cached_property
    def _graph_call(self) -> Any:
        return graph_call(self.__name__, self.plan_in_graph)

    def plan_in_graph(self, args: list[Any], kwargs: dict[str, Any], product: Any = None, lines: str = "") -> Any:
        """The expression of a call (bridge/primitive/graph_calls.py).

        Args:
            product, lines: see Operator.plan_in_graph.
        """
        start_on(devices.target())
        self._refuse_differentiated(args, kwargs)
        kwargs = keywords.translated(self.__name__, kwargs, self.operator)
        if autocast.is_on():
            return self.program.graph.plan_in_graph([], args, kwargs, product, lines, self._graph_call)
        refusal: Exception | None = None
        if self.operator is not None:
            try:
                return self.operator.plan_in_graph(args, kwargs, product, lines, self._graph_call)
            except Exception as error:
                refusal = error
        marks = in_graph.Marks(args, kwargs)
        if refusal is not None and not marks.known:
            raise refusal
        try:
            found = self.one_call(marks.specs, marks.with_tensors) if marks.known else None
        except WritesArgument:
            return self.plan_in_graph(*self._not_in_place(args, kwargs), product, lines)
        if found is None or (found.op is not None and in_pytorch.without_kernel(found.op)):
            return self.program.graph.plan_in_graph([], args, kwargs, product, lines, self._graph_call)
        return in_graph.traced(
            found, marks.tensors, lambda bound: planned_in_graph(bound, False, self._graph_call, product, lines)
        )


def _on_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which makes its tensors on MindSpore's GPU."""

    @functools.wraps(function)
    def placed(*args: Any, **kwargs: Any) -> Any:
        with torch.device(devices.torch_name("GPU")):
            return function(*args, **kwargs)

    return placed


_all: weakref.WeakSet[Function] = weakref.WeakSet()


@dataclass
class _Plan:
    """What a function comes to in PyNative mode, with arguments of a form and tensors of some shapes.

    Args:
        specs: shape and dtype of each tensor, one after the other.
        call: takes the tensors; None if only PyTorch itself can tell.
        again: see Prepared.
    """

    specs: list[Any]
    call: Callable[[list[Any]], Any] | None
    again: Callable[[list[Any]], Any]


def _prepared(found: OneCall) -> Prepared:
    if found.op is None or found.text is None:
        return Prepared(lambda tensors: filled(found.form, (), tensors, _to_mindspore), never)
    device = devices.place(found.op)
    start_on(device)
    run = prepared(Bound(found.op, [], found.text, True), device)
    if found.same and found.inputs == tuple(range(found.count)):
        return run

    def call(tensors: list[Any]) -> Any:
        results = run.call([tensors[i] for i in found.inputs])
        return results if found.same else filled(found.form, flat(results), tensors, _to_mindspore)

    return Prepared(call, never)


def flat(results: Any) -> list[Any]:
    """The tensors among the results of an operator."""
    if isinstance(results, (list, tuple)):
        return [tensor for result in results for tensor in flat(result)]
    return [results] if isinstance(results, ms.Tensor) else []


def _to_mindspore(value: Any) -> Any:
    return dtypes.to_mindspore(value) if isinstance(value, torch.dtype) else value
