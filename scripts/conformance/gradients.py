"""Compares the gradients of one call through MindSpore with torch.autograd.grad's, for the same random cotangents."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms

import bridge

from . import convert, reference, source
from .autograd import Expected, can_require_grad, expected
from .calls import SEED, Call
from .check import Check, bridge_overload
from .compare import flatten
from .verdict import Skip

# Relative to the largest value: second derivatives of float64 samples agree to a few hundred units of round-off.
SECOND_ORDER_TOLERANCE = 1e-12


def gradient_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients with respect to all inputs, as a function of the inputs and the cotangents."""
    return ms.ops.GradOperation(get_all=True, sens_param=True)(function)


class Gradients(Check):
    """Compares gradients of the first order, bit for bit."""

    second = False
    tolerance = 0.0

    def compare(self, call: Call, seeded: bool, graph_reason: str) -> None:
        wanted = expected(call, seeded, self.second)
        run = in_graph(call, wanted) if self.is_in_graph(graph_reason) else self.in_pynative(call, wanted)
        if seeded:
            bridge.manual_seed(SEED)
        found = convert.leaves(run())

        def again() -> list[Any]:
            return expected(call, seeded, self.second).gradients

        reference.compare_to(wanted.gradients, found, again, tolerance=self.tolerance)

    def in_pynative(self, call: Call, wanted: Expected) -> Callable[[], Any]:
        inputs = [convert.to_ms(t) for t in wanted.inputs]
        differentiated = gradient_of(differentiable_function(call, wanted.places))
        return functools.partial(differentiated, *inputs, _cotangents(wanted.cotangents))


class SecondGradients(Gradients):
    """Compares gradients of the second order, to float64's round-off."""

    second = True
    tolerance = SECOND_ORDER_TOLERANCE

    def in_pynative(self, call: Call, wanted: Expected) -> Callable[[], Any]:
        inputs = [convert.to_ms(t) for t in wanted.inputs]
        sens = _cotangents(wanted.cotangents)
        function = differentiable_function(call, wanted.places)

        def first_gradients(*inputs: Any) -> Any:
            return _only_or_tuple(gradient_of(function)(*inputs, sens))

        return functools.partial(gradient_of(first_gradients), *inputs, _cotangents(wanted.second_cotangents))


def differentiable_function(call: Call, places: list[int]) -> Callable[..., Any]:
    """The call as a function of its differentiable inputs, giving its differentiable results."""
    function = bridge_overload(call.overload)
    fixed = {id(t): convert.to_ms(t) for t in call.tensors() if not can_require_grad(t)}

    def run(*inputs: Any) -> Any:
        remaining = iter(inputs)
        made = call.with_tensors(lambda t: fixed[id(t)] if id(t) in fixed else next(remaining))
        results = flatten(function(*map(convert.argument, made.args), **convert.keywords(made.kwargs)))
        return _only_or_tuple([results[i] for i in places])

    return run


def in_graph(call: Call, wanted: Expected) -> Callable[[], Any]:
    """The gradients of the differentiable inputs from one compiled graph of forward and backward."""
    returns = [str(r.type) for r in call.op._schema.returns]
    if len(returns) > 1 and set(returns) != {"Tensor"}:
        raise Skip("graph mode: nested results")
    written = source.write(call)
    chosen = "results" if returns == ["Tensor"] else ", ".join(f"results[{i}]" for i in wanted.places)
    module = written.module(
        f"def call({written.parameters}):\n"
        f"    results = {written.expression}\n"
        f"    return {chosen}\n\n\n"
        "gradient_of = ms.ops.GradOperation(get_all=True, sens_param=True)\n\n\n"
        f"@ms.jit\ndef gradients({written.parameters}, sens):\n"
        f"    return gradient_of(call)({written.parameters}, sens)\n"
    )
    positions = [i for i, t in enumerate(call.tensors()) if can_require_grad(t)]
    sens = _cotangents(wanted.cotangents)

    def run() -> list[Any]:
        grads = module.gradients(*written.tensors, sens)
        return [grads[i] for i in positions]

    return run


def _cotangents(tensors: Sequence[Any]) -> Any:
    return _only_or_tuple([convert.to_ms(t) for t in tensors])


def _only_or_tuple(values: Sequence[Any]) -> Any:
    """MindSpore takes one cotangent bare and several as a tuple."""
    return values[0] if len(values) == 1 else tuple(values)
