"""The calls of backward in two parts: those that the gradients of parameters need, and those that only the gradients
of arguments need, which a graph may not ask for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from bridge.programs.calls import DEFAULT, Call, Register, draws
from bridge.programs.capture import Captured
from bridge.programs.listing import Listing, Output, live, new_register, taken
from bridge.programs.memory import storage_of
from bridge.programs.views import is_view, with_views

# A shorter backward is a layer's, whose argument mostly has a gradient that is asked for. A second primitive would take
# more time than it saves.
_SHORTEST = 16
_CONVOLUTION = torch.ops.aten.convolution_backward.default


def parts(captured: Captured) -> tuple[list[Call], list[Call]]:
    """The calls for the gradients of parameters, and the others. The latter write nothing, and may run after the former
    or not at all; they are empty if there is nothing to gain."""
    of_parameters = [number for number in captured.gradients[: captured.state] if number is not None]
    of_arguments = [number for number in captured.gradients[captured.state :] if number is not None]
    whole = captured.backward, list[Call]()
    if len(captured.backward) < _SHORTEST or not of_parameters or not of_arguments:
        return whole
    calls = _convolutions_apart(captured, of_parameters, of_arguments)
    first = _live(captured, calls, of_parameters)
    rest = _without(_live(captured, calls, [*of_parameters, *of_arguments]), first)
    if all(is_view(captured.tape, call) for call in rest):
        return whole
    rest = with_views(captured.tape, first, rest)
    return (first, rest) if _may_run_later(captured, first, rest) else whole


def with_copies(captured: Captured, rest: list[Call]) -> tuple[list[Call], list[Call]]:
    """Calls that copy what the second part takes of the state, and the second part, with these copies.

    Where forward runs in order, because it draws or writes, MindSpore lets what a graph writes to Parameters later come
    before a part that only waits for forward: an optimizer's step, say.
    """
    tensors = captured.tape.tensors
    state = {storage_of(tensors[number]) for number in captured.inputs[: captured.state]}
    copies: dict[int, int] = {}
    calls: list[Call] = []
    for number in taken(Listing(captured.tape, [], rest, [])):
        if storage_of(tensors[number]) in state:
            with captured.tape.fake_mode:
                copies[number] = new_register(captured.tape, torch.clone(tensors[number]))
            calls.append(Call(torch.ops.aten.clone.default, [Register(number), DEFAULT], [copies[number]]))

    def copied(value: Any) -> Any:
        if isinstance(value, Register):
            return type(value)(copies.get(value.number, value.number))
        return [copied(item) for item in value] if isinstance(value, list) else value

    return calls, [replace(call, arguments=[copied(value) for value in call.arguments]) for call in rest]


def _live(captured: Captured, calls: list[Call], wanted: list[int]) -> list[Call]:
    outputs = [Output([number], captured.spec(number)) for number in wanted]
    return live(Listing(captured.tape, [], calls, outputs))


def _without(calls: Iterable[Call], others: Iterable[Call]) -> list[Call]:
    known = {id(call) for call in others}
    return [call for call in calls if id(call) not in known]


def _convolutions_apart(captured: Captured, of_parameters: list[int], of_arguments: list[int]) -> list[Call]:
    """The calls of backward, with two in place of a convolution's where one is for parameters and one for arguments.
    PyTorch's kernels compute them one by one."""
    needed = {number for call in _live(captured, captured.backward, of_parameters) for number in call.operands}
    needed.update(of_parameters)
    found: list[Call] = []
    for call in captured.backward:
        if call.op is _CONVOLUTION and call.results[0] is not None and needed.isdisjoint(call.results[:1]):
            *given, (_, *of_weights) = call.arguments
            if any(of_weights):
                mask, results = [False, *of_weights], [None, *call.results[1:]]
                found.append(replace(call, arguments=[*given, mask], results=results))
            found.append(replace(call, arguments=[*given, [True, False, False]], results=[call.results[0], None, None]))
        else:
            found.append(call)
    return found


def _may_run_later(captured: Captured, first: list[Call], rest: list[Call]) -> bool:
    """Whether nothing that the second part takes is written to, all of it is memory that can be passed, and no call
    draws."""
    tensors = captured.tape.tensors
    if any(map(draws, rest)):
        return False
    outside = {storage_of(tensors[number]) for number in taken(Listing(captured.tape, [], rest, []))}
    written = {storage_of(tensors[number]) for call in [*first, *rest] for number in call.written}
    operands = [tensors[number] for call in rest for number in call.operands]
    return outside.isdisjoint(written) and not any(tensor.is_conj() or tensor.is_neg() for tensor in operands)
