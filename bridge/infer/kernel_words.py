"""What the kernel says of a call that the meta kernel refuses."""

from __future__ import annotations

import math

from bridge.infer.dimensions import ints, out_of_range
from bridge.infer.trial import Spec, run
from bridge.op.encoding import Text
from bridge.op.overload import Overload
from bridge.op.table import Fact

# A kernel is asked what is wrong with a call if the call has at most so many elements: in its tensors, and in a tensor
# whose sizes are all of its ints.
_MOST_ELEMENTS = 2**22


def ask_kernel(op: Overload, text: Text, inputs: tuple[Spec, ...], real: str) -> tuple[Spec, ...]:
    """What the kernel says of a call that the meta kernel refuses.

    Many meta kernels are written in Python. Some stumble over what the kernel refuses in a sentence, some refuse in
    other words, and some refuse what the kernel takes. The CPU kernel goes first: a CUDA kernel that stumbles would
    take the device with it.
    """
    found = run(op, text, inputs, "cpu")
    return found if real == "cpu" else run(op, text, inputs, real)


def may_ask_kernel(op: Overload, text: Text, inputs: tuple[Spec, ...], error: Exception) -> bool:
    """Whether the call is small, its shapes do not depend on data, and nothing in it is what kernels rely on without a
    check.

    They rely on it that dimensions are there and that lists are as long as the schema says. Those that only autograd
    is meant to call rely on all shapes. Those whose names begin with an underscore check less than others: they are
    asked only where inference stumbles, not where it has a sentence of its own, a RuntimeError.
    """
    if "CPU" not in op.devices or "backward" in op.name or Fact.UNCHECKED in op.facts:
        return False
    if op.schema.packet.startswith("_") and isinstance(error, RuntimeError):
        return False
    if "meta tensor" in str(error) or "on meta" in str(error):  # it needs data, and zeros would give any answer
        return False
    given = [argument for argument in op.schema.arguments if argument.base not in ("Device", "Generator")]
    values = text.values
    rank = max((len(shape) for shape, _ in inputs), default=0)
    if out_of_range(((argument.name, value) for argument, value in zip(given, values, strict=True)), rank):
        return False
    for argument, value in zip(given, values, strict=True):
        fixed = (argument.size or 1) > 1  # int[1] is a list of any length, for which one int may stand
        if fixed and isinstance(value, list) and len(value) != argument.size and value != argument.default:
            return False
    elements = sum(math.prod(shape) for shape, _ in inputs)
    sizes = math.prod(max(abs(number), 1) for number in ints(values))
    return max(elements, sizes) <= _MOST_ELEMENTS


def has_no_data(inputs: tuple[Spec, ...], found: tuple[Spec, ...]) -> bool:
    """Whether all inputs are empty. The kernel then does next to nothing, and what it refuses (the smallest of no
    elements) no data can mend."""
    empty = all(0 in shape for shape, _ in inputs)
    return bool(inputs) and empty and sum(math.prod(shape) for shape, _ in found) <= _MOST_ELEMENTS
