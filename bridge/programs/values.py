"""The data of what follows from a program's constants only."""

from __future__ import annotations

from typing import Any

import torch

from bridge.programs.calls import DEFAULT, Call, Number, Register, draws, no_modes, results_of
from bridge.programs.memory import is_whole, memory_of, storage_of

# Results of more elements are not made: where data decides a size, it may be taken for a large one.
_LARGE = 2**27
_aten = torch.ops.aten
# Their results follow from the form of their first argument, and not from its data.
_OF_FORM = {
    *(_aten.new_zeros.default, _aten.new_ones.default, _aten.new_full.default),
    *(_aten.zeros_like.default, _aten.ones_like.default, _aten.full_like.default),
}
# Results of these of more elements are not made: there are many, and functions ask for small ones.
_LARGE_OF_FORM = 2**20


class Values:
    """The data of tensors that follow from constants only, computed when somebody asks."""

    def __init__(self, calls: list[Call], tensors: list[torch.Tensor], constants: dict[int, torch.Tensor]) -> None:
        self._calls, self._tensors, self._constants = calls, tensors, constants
        self._known: dict[int, torch.Tensor] = {}
        self._next = 0

    def of(self, wanted: list[int]) -> list[torch.Tensor] | None:
        """The data of some registers; None if one depends on the program's inputs."""
        with no_modes(), torch.no_grad():
            for number, tensor in self._constants.items():
                if number not in self._known:
                    self._known[number] = copied(tensor.detach())
            for call in self._calls[self._next :]:
                self._run(call)
        self._next = len(self._calls)
        return [self._known[number] for number in wanted] if all(number in self._known for number in wanted) else None

    def with_inputs(self, register: int, inputs: dict[int, torch.Tensor]) -> torch.Tensor:
        """The data of a register that follows from constants and from these inputs."""
        needed, calls = self.behind(register)
        with no_modes(), torch.no_grad():
            known = {n: copied(tensor.detach()) for n, tensor in self._constants.items() if n in needed}
            known |= {n: tensor.detach() for n, tensor in inputs.items() if n in needed}
            for call in reversed(calls):
                make(call, known)
            return copied(known[register])

    def behind(self, register: int) -> tuple[set[int], list[Call]]:
        """The registers that one follows from, with itself, and the calls that make them, last ones first."""
        needed, calls = {register}, []
        for call in reversed(self._calls):
            if not needed.isdisjoint(call.results):
                needed.update(call.operands)
                calls.append(call)
        return needed, calls

    def _run(self, call: Call) -> None:
        unknown = [number for number in call.operands if number not in self._known]
        is_of_form = call.op in _OF_FORM and unknown == call.operands[:1]
        is_large = self._has_more(call, _LARGE_OF_FORM if is_of_form else _LARGE)
        if draws(call) or (unknown and not is_of_form) or _is_symbolic(call.arguments) or is_large:
            for number in call.written:
                self._forget(number)
        elif is_of_form:
            known = {number: self._known[number] for number in call.operands[1:]}
            like = self._tensors[unknown[0]]
            known[unknown[0]] = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
            make(call, known)
            self._known.update((number, known[number]) for number in call.results if number is not None)
        else:
            make(call, self._known)

    def _has_more(self, call: Call, elements: int) -> bool:
        results = (self._tensors[number] for number in call.results if number is not None)
        return any(tensor.numel() > elements for tensor in results)

    def _forget(self, written: int) -> None:
        storage = storage_of(self._tensors[written])
        for number in [n for n in self._known if storage_of(self._tensors[n]) == storage]:
            del self._known[number]


def make(call: Call, known: dict[int, torch.Tensor]) -> None:
    """Make a call on data.

    Args:
        known: the data of registers, with that of its operands. Takes that of its results.
    """

    def real(value: Any) -> Any:
        if isinstance(value, Register):
            return known[value.number].item() if isinstance(value, Number) else known[value.number]
        return [real(item) for item in value] if isinstance(value, list) else value

    schema = call.op._schema.arguments
    given = [(a, real(v)) for a, v in zip(schema, call.arguments, strict=True) if v is not DEFAULT]
    results = call.op(
        *(value for a, value in given if not a.kwarg_only), **{a.name: v for a, v in given if a.kwarg_only}
    )
    for result, tensor in zip(call.results, results_of(call.op, results), strict=True):
        if result is not None and tensor is not None:
            known[result] = tensor


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy, laid out in memory as the tensor is, and conjugate or negative as it is: calls below autograd know of
    that."""
    if tensor.is_conj():
        return torch._conj(copied(torch._conj(tensor)))
    if tensor.is_neg():
        return torch._neg_view(copied(torch._neg_view(tensor)))
    if tensor.layout is not torch.strided or is_whole(tensor):
        return tensor.clone()
    return memory_of(tensor).clone().as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_symbolic, value))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
