"""A trial of a call: the overload run by PyTorch on tensors that stand for the call's, to see what it gives."""

from __future__ import annotations

import torch

from bridge.call.torch_call import flat, torch_call
from bridge.infer import strides
from bridge.op.encoding import Size, Text
from bridge.op.overload import Overload
from bridge.op.table import Fact

# (shape, PyTorch dtype) of an input or output.
Spec = tuple[tuple[int, ...], torch.dtype]


def run(op: Overload, text: Text, inputs: tuple[Spec, ...], device: str) -> tuple[Spec, ...]:
    """Shape and dtype of each result on `device`, PyTorch's name of one."""
    make = torch.empty if device == "meta" else torch.ones if Fact.REFUSES_ZEROS in op.facts else torch.zeros
    tensors = [make(shape, dtype=dtype, device=device) for shape, dtype in inputs]
    return results_of(op, text, tensors, device)


def run_packed_rnn(op: Overload, text: Text, inputs: tuple[Spec, ...], device: str) -> tuple[Spec, ...]:
    """What the call gives whose data has one step: all but the number of rows of the first result."""
    data, state = inputs[0][0], inputs[2][0]
    if len(data) != 2 or len(state) != 3:
        return run(op, text, inputs, device)  # PyTorch says what is wrong
    tensors = [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in inputs]
    tensors[0] = tensors[0].new_empty(state[1], data[1])
    tensors[1] = torch.tensor([state[1]], dtype=inputs[1][1])
    (shape, dtype), *others = results_of(op, text, tensors, "meta")
    return ((data[0], *shape[1:]), dtype), *others


def results_of(op: Overload, text: Text, tensors: list[torch.Tensor], device: str) -> tuple[Spec, ...]:
    """The same for tensors that are made."""
    seeded = [device] if device.startswith("cuda") else []
    with torch.random.fork_rng(seeded, enabled=op.random and device != "meta"):  # leaves what users seed alone
        found = flat(torch_call(op, text, tensors, device))
    _check(op, text, tensors, found)
    if op.backward is not None and op.backward["uses_results"]:
        strides.record(op.name, text, [tuple(tensor.shape) for tensor in tensors], found)
    results = [(tuple(t.shape), t.dtype) for t in found]
    if text.redraws:
        results.append((tuple(torch.get_rng_state().shape), torch.uint8))
    return tuple(results)


class Refusal(RuntimeError):
    """The bridge itself refuses a call that PyTorch's inference lets pass."""


def _check(op: Overload, text: Text, tensors: list[torch.Tensor], found: list[torch.Tensor]) -> None:
    """Refuse what PyTorch's own inference lets pass, and what would then read memory that is not there."""
    if op.schema.output_mask is not None:
        wanted = sum(text.values[op.schema.output_mask])
        if len(found) != wanted:
            raise Refusal(f"it has {len(found)} results for these arguments, not the {wanted} of its output_mask")
    if op.schema.packet in ("_reshape_alias", "_reshape_alias_copy"):
        sizes, steps = (
            [tensors[item.position].shape[0] if isinstance(item, Size) else item for item in items]
            for items in text.values[1:3]
        )
        last = sum((size - 1) * stride for size, stride in zip(sizes, steps, strict=True))
        if 0 not in sizes and (min(steps, default=0) < 0 or last >= tensors[0].numel()):
            elements = tensors[0].numel()
            raise Refusal(f"sizes {sizes} with strides {steps} are out of bounds for {elements} elements")
