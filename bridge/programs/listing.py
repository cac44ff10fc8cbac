"""Two programs out of a captured run: forward, and backward with what it needs of forward as explicit tensors.

What backward needs is passed as memory: tensors that share memory in PyTorch are saved once, and stand in backward
with the sizes and strides that they had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bridge.programs.capture import Captured, Spec
from bridge.programs.tape import Call, Refusal, Register, Tape, storage_of

# Below autograd these give their argument back.
_ALIASES = {torch.ops.aten.detach.default, torch.ops.aten.lift_fresh.default, torch.ops.aten.alias.default}
# They change the sizes of a tensor that has been given to others: then an alias is not its argument.
_RESHAPES = {"t_", "transpose_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_", "as_strided_", "set_", "resize_"}


@dataclass
class Output:
    """What a program gives: a tensor, row by row, or memory as one row, with the tensors in it."""

    registers: list[int]
    spec: Spec
    is_memory: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """What MindSpore sees: of a primitive that infers in C++ it takes a result without dimensions for a number."""
        return self.spec.shape or (1,)


@dataclass
class Listing:
    """One program, by the registers of the tape."""

    tape: Tape
    inputs: list[int]
    calls: list[Call]
    outputs: list[Output]
    constants: dict[int, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Where backward takes a tensor from: "input" or "output" of forward, or "cotangent" of an output."""

    kind: str
    position: int


@dataclass
class Pair:
    """A forward program and its gradient.

    Attributes:
        results: how many of forward's outputs are the function's; the others are for backward.
        backward: None if nothing has a gradient.
        sources: what backward takes.
        gradients: for each input which of backward's outputs is its gradient; None if it is zero.
        written: the positions of the inputs that forward writes to.
    """

    forward: Listing
    results: int
    backward: Listing | None
    sources: list[Source]
    gradients: list[int | None]
    written: list[int]


def split(captured: Captured, shapes_of: Sequence[int]) -> Pair:
    """The programs of a captured run. Backward takes the inputs at the positions `shapes_of` too."""
    _resolve_aliases(captured)
    tape = captured.tape
    written_constants = _copy_written_constants(captured)
    forward = Listing(tape, captured.inputs, captured.forward, _plain(captured, captured.outputs))
    results = len(forward.outputs)
    passing = _Passing(captured, forward, written_constants, shapes_of)
    backward, sources, gradients = _backward(captured, forward, passing)
    forward.calls = _live(forward)
    forward.constants = _constants(forward)
    return Pair(forward, results, backward, sources, gradients, captured.written)


def _plain(captured: Captured, of: Iterable[int]) -> list[Output]:
    return [Output([register], captured.spec(register)) for register in of]


def _resolve_aliases(captured: Captured) -> None:
    """Put arguments in the place of their aliases."""
    calls = [*captured.forward, *captured.backward]
    if any(call.op._schema.name.removeprefix("aten::") in _RESHAPES for call in calls):
        return
    same: dict[int, int] = {}

    def original(value: Any) -> Any:
        if isinstance(value, Register):
            return Register(same.get(value.number, value.number))
        return [original(item) for item in value] if isinstance(value, list) else value

    kept = {id(call) for call in calls if call.op not in _ALIASES}
    for call in calls:
        call.arguments = [original(value) for value in call.arguments]
        call.written = [same.get(number, number) for number in call.written]
        if id(call) not in kept:
            assert call.results[0] is not None
            same[call.results[0]] = call.operands[0]
    captured.forward = [call for call in captured.forward if id(call) in kept]
    captured.backward = [call for call in captured.backward if id(call) in kept]
    captured.outputs = [same.get(number, number) for number in captured.outputs]
    captured.gradients = [number if number is None else same.get(number, number) for number in captured.gradients]


def _copy_written_constants(captured: Captured) -> set[int]:
    """Have forward write to copies of its constants. Returns the memory of these.

    Raises Refusal if a constant is not the program's own: its next run would have to see what was written.
    """
    tape = captured.tape
    constant = {storage_of(tape.tensors[number]): number for number in tape.constants}
    touched = {storage_of(tape.tensors[number]) for call in captured.forward for number in call.written}
    copied = {storage: number for storage, number in constant.items() if storage in touched}
    for number in copied.values():
        if number not in tape.fresh:
            shape = list(tape.tensors[number].shape)
            raise Refusal(
                f"it writes to a tensor of shape {shape} that is neither a parameter nor a persistent buffer, which a "
                "graph does not keep"
            )
        source = _new_register(tape, tape.tensors[number])
        tape.constants[source] = tape.constants.pop(number)
        clone = torch.ops.aten.clone.default
        captured.forward.insert(0, Call(clone, [Register(source), torch.preserve_format], [number]))
    return set(copied)


def _new_register(tape: Tape, like: torch.Tensor) -> int:
    tape.tensors.append(like)
    return len(tape.tensors) - 1


def _live(listing: Listing) -> list[Call]:
    """The calls whose results are used, that write, or that draw."""
    needed = {number for output in listing.outputs for number in output.registers}
    live = []
    for call in reversed(listing.calls):
        draws = torch.Tag.nondeterministic_seeded in call.op.tags
        if call.written or draws or not needed.isdisjoint(call.results):
            live.append(call)
            needed.update(call.operands)
    return live[::-1]


def _constants(listing: Listing) -> dict[int, torch.Tensor]:
    used = {number for call in listing.calls for number in call.operands}
    used |= {number for output in listing.outputs for number in output.registers}
    return {number: tensor for number, tensor in listing.tape.constants.items() if number in used}


def _backward(
    captured: Captured, forward: Listing, passing: _Passing
) -> tuple[Listing | None, list[Source], list[int | None]]:
    """The gradient's program, what it takes, and which of its outputs is which gradient. Appends what it needs to
    forward's outputs."""
    gradients: list[int | None] = []
    outputs: list[Output] = []
    for number in captured.gradients:
        gradients.append(None if number is None else len(outputs))
        outputs += [] if number is None else _plain(captured, [number])
    if not outputs:
        return None, [], gradients
    backward = Listing(captured.tape, [], captured.backward, outputs)
    backward.calls = _live(backward)
    given = {number: Source("cotangent", i) for i, number in enumerate(captured.cotangents) if number is not None}
    made = {number for call in backward.calls for number in call.results}
    for number in _used(backward):
        if number not in made and number not in given:
            passing.add(number)
    views = passing.views(backward)
    used = set(_used(backward))
    for number, source in given.items():
        if number in used:
            views += passing.take(backward, source, forward.outputs[source.position], [number])
    backward.calls = views + backward.calls
    backward.constants = _constants(backward)
    return backward, passing.sources, gradients


def _used(listing: Listing) -> list[int]:
    """The registers that calls take and that are given, in order."""
    used = [number for call in listing.calls for number in call.operands]
    used += [number for output in listing.outputs for number in output.registers]
    return list(dict.fromkeys(used))


class _Passing:
    """What passes from forward to backward."""

    def __init__(
        self, captured: Captured, forward: Listing, written_constants: set[int], shapes_of: Sequence[int]
    ) -> None:
        self.tape = captured.tape
        self.forward = forward
        self.sources: list[Source] = []
        self._inputs = {storage_of(self.tape.tensors[number]): i for i, number in enumerate(captured.inputs)}
        constants = {storage_of(self.tape.tensors[number]): number for number in self.tape.constants}
        self._constants = {s: number for s, number in constants.items() if s not in written_constants}
        self._given: dict[Any, int] = {}
        for i, output in enumerate(forward.outputs):
            tensor = self.tape.tensors[output.registers[0]]
            if _is_whole(tensor):
                self._given.setdefault((storage_of(tensor), tensor.dtype), i)
        self._of_inputs: dict[int, list[int]] = {position: [] for position in shapes_of}
        self._of_constants: dict[int, list[int]] = {}
        self._of_outputs: dict[int, list[int]] = {}

    def add(self, number: int) -> None:
        """Pass a register of forward's."""
        tensor = self.tape.tensors[number]
        storage = storage_of(tensor)
        flagged = tensor.is_conj() or tensor.is_neg()  # these are no property of memory
        if storage in self._constants:
            self._of_constants.setdefault(self._constants[storage], []).append(number)
        elif storage in self._inputs and not flagged and self._input(storage).dtype == tensor.dtype:
            self._of_inputs.setdefault(self._inputs[storage], []).append(number)
        else:
            self._save(number, (storage, tensor.dtype, number) if flagged else (storage, tensor.dtype))

    def _input(self, storage: int) -> torch.Tensor:
        return self.tape.tensors[self.forward.inputs[self._inputs[storage]]]

    def _save(self, number: int, key: Any) -> None:
        """Have forward give a register's memory."""
        tensor = self.tape.tensors[number]
        if key not in self._given:
            self._given[key] = len(self.forward.outputs)
            is_memory = len(key) == 2
            size = (tensor.untyped_storage().nbytes() // tensor.itemsize,) if is_memory else tuple(tensor.shape)
            self.forward.outputs.append(Output([], Spec(size, tensor.dtype), is_memory))
        position = self._given[key]
        self._of_outputs.setdefault(position, []).append(number)
        output = self.forward.outputs[position]
        if output.is_memory or not output.registers:
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
            calls += [self._view(constant, number) for number in numbers if number != constant]
        return calls

    def take(self, backward: Listing, source: Source, output: Output, numbers: list[int]) -> list[Call]:
        """Have backward take what is like an output of forward's. Gives the calls that make these tensors of it."""
        with self.tape.fake_mode:
            device = self.tape.tensors[numbers[0]].device
            like = torch.empty(output.shape, dtype=output.spec.dtype, device=device)
        return self._take(backward, source, like, numbers)

    def _take(self, backward: Listing, source: Source, like: torch.Tensor, numbers: list[int]) -> list[Call]:
        wanted = _layout(like)
        register = next((number for number in numbers if _layout(self.tape.tensors[number]) == wanted), None)
        if register is None:
            register = _new_register(self.tape, like)
        backward.inputs.append(register)
        self.sources.append(source)
        return [self._view(register, number) for number in numbers if number != register]

    def _view(self, source: int, number: int) -> Call:
        tensor = self.tape.tensors[number]
        layout = [list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]
        return Call(torch.ops.aten.as_strided.default, [Register(source), *layout], [number])


def _layout(tensor: torch.Tensor) -> Any:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor is its memory, row by row."""
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize
    return whole and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def origins(listing: Listing) -> dict[int, tuple[int, int]]:
    """For outputs that are the whole of some memory: the call, and its result, that allocate it."""
    tensors = listing.tape.tensors
    seen = {storage_of(tensors[number]) for number in (*listing.inputs, *listing.constants)}
    allocated: dict[int, tuple[int, int]] = {}
    for i, call in enumerate(listing.calls):
        for j, number in enumerate(call.results):
            if number is not None and storage_of(tensors[number]) not in seen:
                seen.add(storage_of(tensors[number]))
                allocated[storage_of(tensors[number])] = (i, j)
    found: dict[int, tuple[int, int]] = {}
    for i, output in enumerate(listing.outputs):
        tensor = tensors[output.registers[0]]
        origin = allocated.pop(storage_of(tensor), None) if output.is_memory or _is_whole(tensor) else None
        if origin is not None:
            found[i] = origin
    return found


def last_uses(listing: Listing) -> list[list[int]]:
    """For each call the registers that nobody uses after it."""
    kept = {number for output in listing.outputs for number in output.registers}
    found: list[list[int]] = []
    for call in reversed(listing.calls):
        mine = dict.fromkeys([*call.operands, *(number for number in call.results if number is not None)])
        found.append([number for number in mine if number not in kept])
        kept.update(mine)
    return found[::-1]
