"""What passes from forward to the programs after it, which are backward's mostly: memory, whole.

Tensors that share memory in PyTorch are saved once, and stand there with the sizes and strides that they had.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bridge.programs.calls import DEFAULT, Call, Register, registers
from bridge.programs.capture import Captured, Spec
from bridge.programs.listing import Listing, Output, new_register
from bridge.programs.memory import is_whole, layout_in_memory, storage_of
from bridge.programs.tape import Tape
from bridge.programs.views import view

_INDEXES = {
    torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default,
    torch.ops.aten._index_put_impl_.default, torch.ops.aten._unsafe_index.Tensor,
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """Where a program after forward takes a tensor from: forward's inputs or outputs, the gradients of these, or the
    outputs of an earlier program after forward."""

    kind: str
    """"input", "output", "cotangent", or what `of_part` gives."""
    position: int


def of_part(number: int) -> str:
    """The kind of a source that is an output of the program with this number of those after forward."""
    return f"part {number}"


def memory_like(tensor: torch.Tensor) -> Output:
    """All of a tensor's memory, for the registers that lie in it."""
    return Output([], Spec((tensor.untyped_storage().nbytes() // tensor.itemsize,), tensor.dtype), True)


def _is_only_read(tape: Tape, calls: Sequence[Call], number: int) -> bool:
    """Whether calls read a register's data, and do not write there. The gradient of batch norm in training takes the
    running statistics, and does not read them."""
    memory = storage_of(tape.tensors[number])
    if any(storage_of(tape.tensors[one]) == memory for call in calls for one in call.written):
        return False
    return any(number in call.operands and not _is_running(call, number) for call in calls)


def _is_running(call: Call, number: int) -> bool:
    if not call.op._schema.name.endswith("batch_norm_backward"):
        return False
    given = {argument.name: value for argument, value in zip(call.op._schema.arguments, call.arguments, strict=True)}
    others = [value for name, value in given.items() if not name.startswith("running_")]
    return given.get("train", True) is True and number not in {register.number for register in registers(others)}


class Passing:
    """What passes from forward to backward."""

    def __init__(
        self, captured: Captured, forward: Listing, written_constants: set[int], shapes_of: Sequence[int]
    ) -> None:
        self.tape = captured.tape
        self.forward = forward
        self.sources: list[Source] = []
        self._inputs = {storage_of(self.tape.tensors[number]): i for i, number in enumerate(captured.inputs)}
        self._written = {storage_of(self.tape.tensors[captured.inputs[i]]) for i in captured.written}
        # Of several in the same memory the last, which has all of it (see lay_out_constants).
        self._constants = {
            (storage_of(self.tape.tensors[number]), tensor.dtype): number
            for number, tensor in self.tape.constants.items()
            if storage_of(self.tape.tensors[number]) not in written_constants
        }
        self._device = self.tape.tensors[captured.inputs[0]].device if captured.inputs else torch.device("cpu")
        self._given: dict[Any, int] = {}
        for i, output in enumerate(forward.outputs):
            tensor = self.tape.tensors[output.registers[0]]
            if is_whole(tensor):
                self._given.setdefault((storage_of(tensor), tensor.dtype), i)
        self._of_inputs: dict[int, list[int]] = {position: [] for position in shapes_of}
        self._of_constants: dict[int, list[int]] = {}
        self._of_outputs: dict[int, list[int]] = {}

    def again(self) -> Passing:
        """What passes to another program, which takes the same outputs of forward's."""
        other = copy.copy(self)
        other.sources = []
        other._of_inputs = {position: [] for position in self._of_inputs}
        other._of_constants, other._of_outputs = {}, {}
        return other

    def add(self, number: int, calls: Sequence[Call]) -> None:
        """Pass a register of forward's, which has no marks. What forward has written to is passed as it is after
        forward: another call may write there before this one's gradient reads it.

        Args:
            calls: those of the program that takes it.
        """
        tensor = self.tape.tensors[number]
        storage = storage_of(tensor)
        self._know(number, (storage, tensor.dtype))
        if (storage, tensor.dtype) in self._constants:
            self._of_constants.setdefault(self._constants[storage, tensor.dtype], []).append(number)
        elif (
            storage in self._inputs
            and self._input(storage).dtype == tensor.dtype
            and not (storage in self._written and _is_only_read(self.tape, calls, number))
        ):
            self._of_inputs.setdefault(self._inputs[storage], []).append(number)
        else:
            self._save(number, (storage, tensor.dtype))

    def _know(self, number: int, key: Any) -> None:
        """Have backward take a number on the host for a constant, if it is the same in each run. Forward would give it
        on the GPU, where a kernel rounds otherwise: PyTorch's divides by a number on the host as it multiplies."""
        tensor = self.tape.tensors[number]
        if key in self._constants or tensor.dim() > 0 or tensor.device.type == self._device.type:
            return
        known = self.tape.known(number)
        if known is not None:
            constant = new_register(self.tape, tensor)
            self.tape.constants[constant] = known
            self._constants[key] = constant

    def _input(self, storage: int) -> torch.Tensor:
        return self.tape.tensors[self.forward.inputs[self._inputs[storage]]]

    def _save(self, number: int, key: Any) -> None:
        """Have forward give a register's memory."""
        tensor = self.tape.tensors[number]
        if key not in self._given:
            self._given[key] = len(self.forward.outputs)
            self.forward.outputs.append(memory_like(tensor))
        position = self._given[key]
        self._of_outputs.setdefault(position, []).append(number)
        output = self.forward.outputs[position]
        if output.is_memory:
            output.registers.append(number)

    def views(self, backward: Listing) -> list[Call]:
        """The calls with which backward begins: they make the tensors of forward out of what is passed."""
        calls: list[Call] = []
        for position, numbers in self._of_inputs.items():
            like = self.tape.tensors[self.forward.inputs[position]]
            calls += self._take(backward, Source("input", position), like, numbers)
        for position, numbers in self._of_outputs.items():
            calls += self.take(backward, Source("output", position), self.forward.outputs[position], numbers)
        for constant, numbers in self._of_constants.items():
            calls += [view(self.tape, constant, number) for number in numbers if number != constant]
        return calls

    def take(self, backward: Listing, source: Source, output: Output, numbers: list[int]) -> list[Call]:
        """Have backward take what is like an output of forward's. Gives the calls that make these tensors of it."""
        with self.tape.fake_mode:
            device = self.tape.tensors[numbers[0]].device
            like = torch.empty(output.shape, dtype=output.spec.dtype, device=device)
        return self._take(backward, source, like, numbers)

    def _take(self, backward: Listing, source: Source, like: torch.Tensor, numbers: list[int]) -> list[Call]:
        wanted = layout_in_memory(like)
        register = next((number for number in numbers if layout_in_memory(self.tape.tensors[number]) == wanted), None)
        if register is None:
            register = new_register(self.tape, like)
        self.sources.append(source)
        views = [view(self.tape, register, number) for number in numbers if number != register]
        if like.device.type == self._device.type or self._may_be_anywhere(backward, numbers):
            backward.inputs.append(register)
            return views
        with self.tape.fake_mode:
            backward.inputs.append(new_register(self.tape, like.to(self._device)))
        arguments = [Register(backward.inputs[-1]), DEFAULT, DEFAULT, like.device, DEFAULT, DEFAULT, DEFAULT]
        return [Call(torch.ops.aten._to_copy.default, arguments, [register]), *views]

    def _may_be_anywhere(self, backward: Listing, numbers: list[int]) -> bool:
        """Whether the calls of backward take these tensors from the host and from the GPU, as numbers and indices are.
        What passes is on the GPU, and what has to be on the host waits."""
        if all(self.tape.tensors[number].dim() == 0 for number in numbers):
            return True
        users = (call for call in backward.calls if not {*numbers}.isdisjoint(call.operands))
        return all(call.op in _INDEXES for call in users)
