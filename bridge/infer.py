"""Shapes and dtypes of results: the same ATen operator, run on tensors of the `meta` device, which hold no data."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from bridge import devices, dtypes, gradient, layouts
from bridge.encoding import RANDOM_MARK, Slot, decode
from bridge.schema import Schema, label, schema

# (shape, PyTorch dtype) of an input or output.
Spec = tuple[tuple[int, ...], torch.dtype]

# Operators whose meta kernels give a wrong shape or, where the gradient needs them, wrong strides (_linalg_svd): these
# run on tensors filled with zeros instead.
WRONG_ON_META = {
    "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "_batch_norm_no_update",
    "_native_batch_norm_legit_no_training", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only",
    "_batch_norm_with_update_functional", "_foreach_pow", "_weight_norm_interface", "_autocast_to_reduced_precision",
    "_autocast_to_full_precision", "log_sigmoid_forward", "native_layer_norm", "_linalg_svd", "_make_dep_token",
}  # fmt: skip

# Operators that read values while they run, although these do not decide about shapes, and have no meta function that
# does without: these run on tensors filled with zeros as well, or with ones where they refuse zeros.
READS_VALUES = {
    "_foreach_addcdiv.Tensor", "_foreach_addcmul.Tensor", "_pack_padded_sequence_backward", "narrow.Tensor",
    "randint_like.Tensor_generator", "cov", "istft",
}  # fmt: skip
REFUSES_ZEROS = {"randint_like.Tensor_generator", "cov", "istft"}

# The second tensor of these says how many rows of the first belong to each step; the third has a row for each of the
# first step.
PACKED_RNNS = {"gru.data", "lstm.data", "rnn_relu.data", "rnn_tanh.data"}


def _torch_value(argument: Any, value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, Slot):
        return tensors[value.position]
    if isinstance(value, list):
        return [_torch_value(argument, item, tensors) for item in value]
    if value is None:
        return None
    if argument.base == "ScalarType":
        return dtypes.TORCH_DTYPES[value]
    if argument.base in ("Layout", "MemoryFormat"):
        return getattr(torch, value)
    return value


def torch_call(op: Schema, text: str, tensors: list[torch.Tensor], device: str) -> Any:
    """Call the overload in PyTorch with the arguments of `text`; what lets a device be named is on `device`."""
    values = iter(decode(text))
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in op.arguments:
        if argument.base in ("Device", "Generator"):
            value = device if argument.base == "Device" else None
        else:
            value = _torch_value(argument, next(values), tensors)
        if argument.keyword_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return op.torch_op(*args, **kwargs)


def flat(results: Any) -> list[torch.Tensor]:
    """The tensors among the results of an overload."""
    if isinstance(results, torch.Tensor):
        return [results]
    if not isinstance(results, (list, tuple)):
        return []
    return [tensor for result in results for tensor in flat(result)]


def _run(op: Schema, text: str, inputs: tuple[Spec, ...], device: str) -> tuple[Spec, ...]:
    make = torch.empty if device == "meta" else torch.ones if op.name in REFUSES_ZEROS else torch.zeros
    tensors = [make(shape, dtype=dtype, device=device) for shape, dtype in inputs]
    return _results(op, text, tensors, device)


def _run_packed_rnn(op: Schema, text: str, inputs: tuple[Spec, ...], device: str) -> tuple[Spec, ...]:
    """What the call gives whose data has one step: all but the number of rows of the first result."""
    data, state = inputs[0][0], inputs[2][0]
    if len(data) != 2 or len(state) != 3:
        return _run(op, text, inputs, device)  # PyTorch says what is wrong
    tensors = [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in inputs]
    tensors[0] = tensors[0].new_empty(state[1], data[1])
    tensors[1] = torch.tensor([state[1]], dtype=inputs[1][1])
    (shape, dtype), *others = _results(op, text, tensors, "meta")
    return ((data[0], *shape[1:]), dtype), *others


def _results(op: Schema, text: str, tensors: list[torch.Tensor], device: str) -> tuple[Spec, ...]:
    seeded = [device] if device.startswith("cuda") else []
    with torch.random.fork_rng(seeded, enabled=op.random and device != "meta"):  # leaves what users seed alone
        found = flat(torch_call(op, text, tensors, device))
    _check(op, text, tensors, found)
    if op.backward is not None and op.backward["uses_results"]:
        layouts.record(op.name, text, [tuple(tensor.shape) for tensor in tensors], found)
    results = [(tuple(t.shape), t.dtype) for t in found]
    if text.endswith(RANDOM_MARK):
        results.append((tuple(torch.get_rng_state().shape), torch.uint8))
    return tuple(results)


# Data of several kinds, from the number of each element. What differs among their results depends on the data.
_Data = Callable[[torch.Tensor], torch.Tensor]
_DATA: list[_Data] = [
    torch.zeros_like,
    torch.ones_like,
    lambda numbers: torch.full_like(numbers, 2),
    lambda numbers: numbers % 3,
    lambda numbers: torch.sin(numbers * numbers) * 3,  # as good as random
]


def _below(size: int) -> _Data:
    return lambda numbers: numbers < size


def _run_on_data(op: Schema, text: str, inputs: tuple[Spec, ...], device: str) -> tuple[Spec, ...]:
    """What results have in common whose shapes depend on the data; the rest is unknown, as in `infer_unknown`."""
    if op.name == "_reshape_from_tensor":
        return (((-1,) * inputs[1][0][0], inputs[0][1]),)
    # A mask among indices has as many elements that count as the other indices have.
    sizes = {shape[-1] for shape, dtype in inputs if shape and not dtype.is_floating_point}
    masked = any(dtype in (torch.bool, torch.uint8) for _, dtype in inputs)
    counted = [_below(size) for size in sizes] if masked else []
    found: list[tuple[Spec, ...]] = []
    for data in (*_DATA, *counted):
        numbers = [torch.arange(math.prod(shape), dtype=torch.float64).view(shape) for shape, _ in inputs]
        tensors = [data(x).to(dtype).to(device) for x, (_, dtype) in zip(numbers, inputs, strict=True)]
        try:
            found.append(_results(op, text, tensors, device))
        except Exception as error:  # such data is not for this operator
            failure = error
    if not found:
        raise failure
    if len({len(results) for results in found}) > 1:
        raise RuntimeError("the number of its results depends on the data, and a graph needs to know it")
    if len(found) == 1:
        return tuple(((-1,) * len(shape), dtype) for shape, dtype in found[0])
    return functools.reduce(_common, found)


def _check(op: Schema, text: str, tensors: list[torch.Tensor], found: list[torch.Tensor]) -> None:
    """Refuse what PyTorch's own inference lets pass, and what would then read memory that is not there."""
    if op.output_mask is not None:
        wanted = sum(decode(text)[op.output_mask])
        if len(found) != wanted:
            raise RuntimeError(f"it has {len(found)} results for these arguments, not the {wanted} of its output_mask")
    if op.packet in ("_reshape_alias", "_reshape_alias_copy"):
        _, sizes, strides = decode(text)[:3]
        last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        if 0 not in sizes and (min(strides, default=0) < 0 or last >= tensors[0].numel()):
            elements = tensors[0].numel()
            raise RuntimeError(f"sizes {sizes} with strides {strides} are out of bounds for {elements} elements")


@functools.lru_cache(maxsize=65536)
def infer(name: str, text: str, device: str, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """Shape and dtype of each result of the overload, which runs on `device` ("CPU" or "GPU").

    Raises what PyTorch raises, with the operator's name in front.
    """
    if name.startswith(gradient.PREFIX):
        return gradient.infer(text, inputs)
    if name.startswith(gradient.BACKWARD_PREFIX):
        return gradient.infer_backward(text, inputs)
    unsized = name.startswith(gradient.UNSIZED_PREFIX)
    if unsized:
        name, text = name.removeprefix(gradient.UNSIZED_PREFIX), gradient.parse(text).text
    op = schema(name)
    real = devices.torch_name(device)
    with torch.no_grad():
        try:
            if not op.is_aten:
                return _run(op, op.operator_text(text), inputs, "meta")
            if unsized:
                return _run_on_data(op, text, inputs, real)
            if op.name in READS_VALUES:
                return _run(op, text, inputs, real)
            if op.name in PACKED_RNNS:
                return _run_packed_rnn(op, text, inputs, real)
            try:
                found = _run(op, text, inputs, "meta")
                return _run(op, text, inputs, real) if op.packet in WRONG_ON_META else found
            except NotImplementedError:  # no meta kernel
                return _run(op, text, inputs, real)
            except RuntimeError as error:
                if "data is not allocated yet" not in str(error):  # a composite that reads values
                    raise
                return _run(op, text, inputs, real)
        except Exception as error:
            raise renamed(error, name) from None


def renamed(error: Exception, name: str) -> Exception:
    """The error as one of the three kinds that callers expect, saying which operator it is about."""
    kind = next((k for k in (TypeError, ValueError, IndexError) if isinstance(error, k)), RuntimeError)
    words, _, _ = str(error).partition("\nException raised from")  # what follows is a C++ backtrace
    return kind(f"{label(name)}: {words}")

# What an unknown dimension is taken to be. Two values tell what follows from it; both even and with room for kernels
# and strides.
_STAND_INS = (24, 40)


def infer_unknown(name: str, text: str, device: str, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """`infer` for graph mode, where dimensions may be unknown (-1) and so may the rank (a single -2).

    What cannot be told from the known dimensions is unknown in the results too.
    """
    if all(size >= 0 for shape, _ in inputs for size in shape):
        return infer(name, text, device, inputs)
    if any(-2 in shape for shape, _ in inputs):
        return tuple(((-2,), dtype) for _, dtype in _infer_with_any_rank(name, text, device, inputs))
    try:
        first, second = (_infer_filled(name, text, device, inputs, size) for size in _STAND_INS)
    except Exception as error:
        return _infer_ranks(name, text, device, inputs, error)
    return _common(first, second)


def _infer_filled(name: str, text: str, device: str, inputs: tuple[Spec, ...], unknown: int) -> tuple[Spec, ...]:
    return infer(name, text, device, tuple((_filled(shape, unknown), dtype) for shape, dtype in inputs))


def _infer_ranks(
    name: str, text: str, device: str, inputs: tuple[Spec, ...], refusal: Exception
) -> tuple[Spec, ...]:
    """The results without their sizes, where an unknown dimension has to be 1, or as long as a known one."""
    for size in sorted({1, *(size for shape, _ in inputs for size in shape if size > 0)}):
        try:
            found = _infer_filled(name, text, device, inputs, size)
        except Exception:
            continue
        return tuple(((-1,) * len(shape), dtype) for shape, dtype in found)
    raise refusal


def _common(first: tuple[Spec, ...], second: tuple[Spec, ...]) -> tuple[Spec, ...]:
    return tuple(
        (_common_shape(one, other), dtype) for (one, dtype), (other, _) in zip(first, second, strict=True)
    )


def _filled(shape: tuple[int, ...], unknown: int) -> tuple[int, ...]:
    return tuple(unknown if size < 0 else size for size in shape)


def _common_shape(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    if len(one) != len(other):
        return (-2,)
    return tuple(a if a == b else -1 for a, b in zip(one, other, strict=True))


def _infer_with_any_rank(name: str, text: str, device: str, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    for rank in (4, 3, 2, 5, 1):
        filled = tuple(((-1,) * rank if -2 in shape else shape, dtype) for shape, dtype in inputs)
        try:
            return infer_unknown(name, text, device, filled)
        except Exception as error:
            last = error
    raise last
