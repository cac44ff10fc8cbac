"""Programs of one form, whichever answers data gives to a program's questions (data_sizes.py).

Each answer leads to other calls, with other tensors that pass from forward to backward, while a graph has the same
tensors for all. So forward gives one row of bytes with all that backward needs. Backward takes that row, all inputs,
all results and their gradients. It gives a gradient to each input that may have one: zeros, where an answer has none.
Where PyTorch cannot differentiate what an answer leads to, backward raises its error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from bridge.programs.calls import DEFAULT, Call, Register
from bridge.programs.capture import Captured, Spec
from bridge.programs.listing import Listing, Output, constants, live, new_register
from bridge.programs.passing import Source
from bridge.programs.split import Pair

_ATEN = torch.ops.aten


def uniform(captured: Captured, pair: Pair, inputs: Sequence[Spec], device: str) -> Pair:
    """These programs in that form.

    Args:
        captured: the run that they are of.
        inputs: the specs of its inputs.
        device: PyTorch's name of where they are.
    """
    tape, forward = captured.tape, pair.forward
    backward, sources = (pair.backward[0], pair.sources[0]) if pair.backward else (Listing(tape, [], [], []), [])
    given = dict(zip(sources, backward.inputs, strict=True))

    def empty(shape: Sequence[int], dtype: torch.dtype, on: Any = device) -> int:
        with tape.fake_mode:
            return new_register(tape, torch.empty(shape, dtype=dtype, device=on))

    count = len(pair.results)
    saved = forward.outputs[count:]
    row, ends = _packed(forward, saved, empty)
    taken = empty(tape.tensors[row].shape, torch.uint8)
    unpacking: list[Call] = []
    for i, (output, (begin, end)) in enumerate(zip(saved, ends, strict=True)):
        register = given.get(Source("output", count + i))
        if register is not None:
            part, own = empty([end - begin], torch.uint8), empty([end - begin], torch.uint8)
            where = tape.tensors[output.registers[0]].device
            unpacking += [
                Call(_ATEN.slice.Tensor, [Register(taken), 0, begin, end, 1], [part]),
                Call(_ATEN.clone.default, [Register(part), DEFAULT], [own]),  # views begin where memory begins
            ]
            if where != tape.tensors[taken].device:
                on_host = empty([end - begin], torch.uint8, where)
                unpacking.append(_moved(own, where, on_host))
                own = on_host
            unpacking.append(Call(_ATEN.view.dtype, [Register(own), output.spec.dtype], [register]))

    results = forward.outputs[:count]
    all_sources = [Source("input", i) for i in range(len(inputs))]
    all_sources += [Source("output", i) for i in range(len(results))]
    registers = [given.get(source, number) for source, number in zip(all_sources, captured.inputs, strict=False)]
    for i, output in enumerate(results):
        registers.append(given.get(Source("output", i), empty(output.shape, output.spec.dtype)))
    all_sources.append(Source("output", len(results)))
    registers.append(taken)
    for i, output in enumerate(results):
        if output.spec.dtype.is_floating_point or output.spec.dtype.is_complex:
            all_sources.append(Source("cotangent", i))
            registers.append(given.get(all_sources[-1], empty(output.shape, output.spec.dtype)))

    calls = [*unpacking, *backward.calls]
    if captured.no_gradient:
        never = empty([], torch.bool)
        calls.append(Call(_ATEN.new_zeros.default, [Register(registers[0]), [], torch.bool, *[DEFAULT] * 3], [never]))
        calls.append(Call(_ATEN._assert_async.msg, [Register(never), captured.no_gradient], []))
    gradients: list[tuple[int, int] | None] = []
    outputs: list[Output] = []
    for i, (spec, found) in enumerate(zip(inputs, pair.gradients, strict=True)):
        gradients.append((0, len(outputs)) if spec.requires_grad else None)
        if spec.requires_grad:
            if found is None:
                zeros = empty(spec.shape, spec.dtype)
                calls.append(Call(_ATEN.zeros_like.default, [Register(registers[i]), *[DEFAULT] * 5], [zeros]))
            outputs.append(Output([zeros], spec) if found is None else backward.outputs[found[1]])
    backward = Listing(tape, registers, calls, outputs)
    backward.calls = live(backward)
    backward.constants = constants(backward)
    forward.outputs = [*results, Output([row], Spec(tuple(tape.tensors[row].shape), torch.uint8))]
    return replace(pair, backward=[backward], sources=[all_sources], gradients=gradients)


def _moved(register: int, device: torch.device, result: int) -> Call:
    """The call that copies a tensor to another device, and waits."""
    return Call(_ATEN._to_copy.default, [Register(register), *[DEFAULT] * 2, device, *[DEFAULT] * 3], [result])


def _packed(forward: Listing, saved: Sequence[Output], empty: Callable[..., int]) -> tuple[int, list[tuple[int, int]]]:
    """Have forward lay memory out in a row of bytes. Gives its register, and where each part begins and ends.

    Args:
        saved: the memory.
        empty: makes a register that no call has made.
    """
    tensors = forward.tape.tensors
    parts: list[Register] = []
    ends: list[tuple[int, int]] = []
    begin = 0

    def call(op: Any, arguments: list[Any], shape: list[int], dtype: torch.dtype = torch.uint8, **on: Any) -> Register:
        result = empty(shape, dtype, **on)
        forward.calls.append(Call(op, arguments, [result]))
        return Register(result)

    for output in saved:
        number, (count,), dtype = output.registers[0], output.spec.shape, output.spec.dtype
        size = count * dtype.itemsize
        where, device = tensors[number].device, tensors[forward.inputs[0]].device
        memory = call(_ATEN.as_strided.default, [Register(number), [count], [1], 0], [count], dtype, on=where)
        if where != device:
            on_device = empty([count], dtype)
            forward.calls.append(_moved(memory.number, device, on_device))
            memory = Register(on_device)
        parts.append(call(_ATEN.view.dtype, [memory, torch.uint8], [size]))
        ends.append((begin, begin + size))
        begin += size
    if not parts:
        begin = 1
        parts.append(
            call(_ATEN.new_zeros.default, [Register(forward.inputs[0]), [1], torch.uint8, *[DEFAULT] * 3], [1])
        )
    return call(_ATEN.cat.default, [parts, 0], [begin]).number, ends
