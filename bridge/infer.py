"""Shapes and dtypes of results: the same ATen operator, run on tensors of the `meta` device, which hold no data."""
from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import torch

from bridge import devices, dtypes, gradient, layouts
from bridge.encoding import Size, Slot, decode, redraws
from bridge.schema import Schema, label, schema

# (shape, PyTorch dtype) of an input or output.
Spec = tuple[tuple[int, ...], torch.dtype]

# Operators (or single overloads) whose meta kernels give a wrong shape or dtype, let pass what the kernel refuses or,
# where the gradient needs them, give wrong strides (_linalg_svd): these run on tensors filled with zeros instead.
WRONG_ON_META = {
    "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "_batch_norm_no_update",
    "_native_batch_norm_legit_no_training", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only",
    "_batch_norm_with_update_functional", "_foreach_pow", "_weight_norm_interface", "_autocast_to_reduced_precision",
    "_autocast_to_full_precision", "log_sigmoid_forward", "native_layer_norm", "_linalg_svd", "_make_dep_token",
    "linspace.Scalar_Tensor", "linspace.Tensor_Scalar", "linspace.Tensor_Tensor", "logspace.Scalar_Tensor",
    "logspace.Tensor_Scalar", "logspace.Tensor_Tensor",
}  # fmt: skip

# Those whose meta kernels give a wrong dtype if the inputs have several.
WRONG_ON_META_IF_MIXED = {
    "addr", "block_diag", "huber_loss", "native_group_norm", "normal.Tensor_Tensor", "smooth_l1_loss_backward",
    "soft_margin_loss",
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

# Operators whose kernels read memory that is not there when they get what their meta kernels refuse: nobody may ask
# these kernels what is wrong.
UNCHECKED = {"_chunk_cat", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"}

# A kernel is asked what is wrong with a call if the call has at most so many elements: in its tensors, and in a tensor
# whose sizes are all of its ints.
_MOST_ELEMENTS = 2**22


def _torch_value(argument: Any, value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, Slot):
        tensor = tensors[value.position]
        return tensor.shape[0] if isinstance(value, Size) else tensor
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
    if redraws(text):
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


class _Refusal(RuntimeError):
    """The bridge itself refuses a call that PyTorch's inference lets pass."""


def _check(op: Schema, text: str, tensors: list[torch.Tensor], found: list[torch.Tensor]) -> None:
    """Refuse what PyTorch's own inference lets pass, and what would then read memory that is not there."""
    if op.output_mask is not None:
        wanted = sum(decode(text)[op.output_mask])
        if len(found) != wanted:
            raise _Refusal(f"it has {len(found)} results for these arguments, not the {wanted} of its output_mask")
    if op.packet in ("_reshape_alias", "_reshape_alias_copy"):
        sizes, strides = (
            [tensors[item.position].shape[0] if isinstance(item, Size) else item for item in items]
            for items in decode(text)[1:3]
        )
        last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        if 0 not in sizes and (min(strides, default=0) < 0 or last >= tensors[0].numel()):
            elements = tensors[0].numel()
            raise _Refusal(f"sizes {sizes} with strides {strides} are out of bounds for {elements} elements")


def _infer_aten(op: Schema, text: str, inputs: tuple[Spec, ...], real: str) -> tuple[Spec, ...]:
    """What an ATen overload gives, on `real`, PyTorch's name of a device."""
    if op.name in READS_VALUES:
        return _run(op, text, inputs, real)
    if op.name in PACKED_RNNS:
        return _run_packed_rnn(op, text, inputs, real)
    try:
        found = _run(op, text, inputs, "meta")
    except NotImplementedError:  # no meta kernel
        return _run(op, text, inputs, real)
    except Exception as error:
        if "data is not allocated yet" in str(error):  # a composite that reads values
            return _run(op, text, inputs, real)
        if isinstance(error, _Refusal) or not _may_ask_kernel(op, text, inputs, error):
            raise
        return _ask_kernel(op, text, inputs, real)
    public = "backward" not in op.name and not op.packet.startswith("_")  # others check too little to be tried
    if _is_wrong_on_meta(op, inputs) or (public and _has_no_data(inputs, found)):
        return _run(op, text, inputs, real)
    return found


def _is_wrong_on_meta(op: Schema, inputs: tuple[Spec, ...]) -> bool:
    names = {op.packet, op.name}
    mixed = len({dtype for _, dtype in inputs}) > 1
    return not names.isdisjoint(WRONG_ON_META) or (mixed and not names.isdisjoint(WRONG_ON_META_IF_MIXED))


def _ask_kernel(op: Schema, text: str, inputs: tuple[Spec, ...], real: str) -> tuple[Spec, ...]:
    """What the kernel says of a call that the meta kernel refuses.

    Many meta kernels are written in Python. Some stumble over what the kernel refuses in a sentence, some refuse in
    other words, and some refuse what the kernel takes. The CPU kernel goes first: a CUDA kernel that stumbles would
    take the device with it.
    """
    found = _run(op, text, inputs, "cpu")
    return found if real == "cpu" else _run(op, text, inputs, real)


def _may_ask_kernel(op: Schema, text: str, inputs: tuple[Spec, ...], error: Exception) -> bool:
    """Whether the call is small, its shapes do not depend on data, and nothing in it is what kernels rely on without a
    check.

    They rely on it that dimensions are there and that lists are as long as the schema says. Those that only autograd
    is meant to call rely on all shapes. Those whose names begin with an underscore check less than others: they are
    asked only where inference stumbles, not where it has a sentence of its own, a RuntimeError.
    """
    if "CPU" not in op.devices or "backward" in op.name or op.packet in UNCHECKED:
        return False
    if op.packet.startswith("_") and isinstance(error, RuntimeError):
        return False
    if "meta tensor" in str(error) or "on meta" in str(error):  # it needs data, and zeros would give any answer
        return False
    given = [argument for argument in op.arguments if argument.base not in ("Device", "Generator")]
    values = decode(text)
    rank = max((len(shape) for shape, _ in inputs), default=0)
    for argument, value in zip(given, values, strict=True):
        fixed = (argument.size or 1) > 1  # int[1] is a list of any length, for which one int may stand
        if fixed and isinstance(value, list) and len(value) != argument.size and value != argument.default:
            return False
        if argument.name.startswith("dim") and any(number not in range(-rank, max(rank, 1)) for number in _ints(value)):
            return False
    elements = sum(math.prod(shape) for shape, _ in inputs)
    sizes = math.prod(max(abs(number), 1) for number in _ints(values))
    return max(elements, sizes) <= _MOST_ELEMENTS


def _ints(value: Any) -> Iterator[int]:
    """The ints among decoded arguments."""
    if isinstance(value, list):
        yield from itertools.chain.from_iterable(map(_ints, value))
    elif isinstance(value, int):
        yield value


def _has_no_data(inputs: tuple[Spec, ...], found: tuple[Spec, ...]) -> bool:
    """Whether all inputs are empty. The kernel then does next to nothing, and what it refuses (the smallest of no
    elements) no data can mend."""
    empty = all(0 in shape for shape, _ in inputs)
    return bool(inputs) and empty and sum(math.prod(shape) for shape, _ in found) <= _MOST_ELEMENTS


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
            return (_run_on_data if unsized else _infer_aten)(op, text, inputs, real)
        except Exception as error:
            raise renamed(error, name) from None


# What PyTorch's operators raise, beside RuntimeError. Any other error is a stumble of their inference, and no class to
# tell users of.
_KINDS = (TypeError, ValueError, IndexError, OverflowError, NotImplementedError, torch.linalg.LinAlgError)


def renamed(error: Exception, name: str) -> Exception:
    """The error as one of the kinds that PyTorch's operators raise, saying which operator it is about."""
    kind = next((kind for kind in _KINDS if isinstance(error, kind)), RuntimeError)
    words, _, _ = str(error).partition("\nException raised from")  # what follows is a C++ backtrace
    return kind(f"{label(name)}: {words}")


@functools.lru_cache(maxsize=4096)
def check_dtypes(name: str, text: str, device: str, inputs: tuple[Spec, ...]) -> None:
    """Raise RuntimeError if the kernel refuses these dtypes: floating ones that differ, which meta functions let pass.

    For graph mode, where the kernel itself would say so when the graph runs.
    """
    floating = {dtype for _, dtype in inputs if dtype.is_floating_point}
    if len(floating) < 2 or name.startswith((gradient.PREFIX, gradient.BACKWARD_PREFIX)):
        return
    op = schema(name)
    if not op.dispatched or any(-2 in shape for shape, _ in inputs):
        return
    filled = tuple((_filled(shape, _STAND_INS[0]), dtype) for shape, dtype in inputs)
    try:
        with torch.no_grad():
            _run(op, op.operator_text(text), filled, devices.torch_name(device))
    except RuntimeError as error:
        if "type" in str(error):  # not what zeros in the place of data may cause
            raise RuntimeError(f"{renamed(error, name)}; {_CAST_PARAMETERS}") from None


_CAST_PARAMETERS = (
    "in a graph, mixed precision casts what a cell is given, but not the parameters that it passes to a function: cast "
    "the parameters too"
)

# What an unknown dimension is taken to be. Two values tell what follows from it; both even and with room for kernels
# and strides.
_STAND_INS = (24, 40)


def infer_unknown(name: str, text: str, device: str, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """`infer` for graph mode, where dimensions may be unknown (-1) and so may the rank (a single -2).

    What cannot be told from the known dimensions is unknown in the results too.

    Raises:
        ValueError: how many results there are cannot be told.
        Exception: what `infer` raises.
    """
    if all(size >= 0 for shape, _ in inputs for size in shape):
        return infer(name, text, device, inputs)
    if any(-2 in shape for shape, _ in inputs):
        return tuple(((-2,), dtype) for _, dtype in _infer_with_any_rank(name, text, device, inputs))
    lengths = _lengths(name, text)
    if lengths:
        return _infer_with_lengths(name, text, device, inputs, lengths)
    try:
        first, second = (_infer_filled(name, text, device, inputs, size) for size in _STAND_INS)
    except Exception as error:
        return _infer_ranks(name, text, device, inputs, error)
    if len(first) != len(second):
        raise ValueError(f"{label(name)}: how many results it has follows from the size of a dimension that is unknown")
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


@functools.lru_cache(maxsize=4096)
def _lengths(name: str, text: str) -> tuple[int, ...]:
    """The inputs of an overload whose lengths are arguments (encoding.Size)."""

    def positions(value: Any) -> Iterator[int]:
        if isinstance(value, list):
            yield from itertools.chain.from_iterable(map(positions, value))
        elif isinstance(value, Size):
            yield value.position

    is_gradient = name.startswith((gradient.PREFIX, gradient.BACKWARD_PREFIX))  # their inputs tell their results
    return () if is_gradient or "::" in name else tuple(positions(decode(text)))


# Their result has the shape of the argument `size` or `shape`, in which -1 is for PyTorch to find.
_SHAPED_BY_ARGUMENT = {
    "view", "view_copy", "_unsafe_view", "reshape", "_reshape_copy", "expand", "expand_copy", "broadcast_to",
}  # fmt: skip


def _infer_with_lengths(
    name: str, text: str, device: str, inputs: tuple[Spec, ...], lengths: tuple[int, ...]
) -> tuple[Spec, ...]:
    """The results where arguments are sizes that only the run tells.

    How these are related to the inputs' unknown dimensions is not known: equal, a part, a product with others. Those of
    the results' dimensions are known that come out alike for every relation that fits.
    """
    known = {size for shape, _ in inputs for size in shape if size > 1}
    factors = [Fraction(1), Fraction(2), Fraction(1, 2), *map(Fraction, sorted(known)[:4])]
    found: list[tuple[Spec, ...]] = []
    for chosen in itertools.islice(itertools.product(factors, repeat=len(lengths)), 64):
        tried = []
        for size in _STAND_INS:
            at = {position: int(size * factor) for position, factor in zip(lengths, chosen, strict=True)}
            filled = tuple((_filled(shape, at.get(i, size)), dtype) for i, (shape, dtype) in enumerate(inputs))
            try:
                tried.append(infer(name, text, device, filled))
            except Exception as error:
                refusal = error
                break
        else:
            if len({len(results) for results in (*tried, *found)}) > 1:
                raise ValueError(f"{label(name)}: how many results it has follows from a size that is unknown")
            found += tried
    if found:
        return functools.reduce(_common, found)
    op = schema(name)
    if op.packet in _SHAPED_BY_ARGUMENT:
        sizes = next(value for value in decode(text) if isinstance(value, list))
        return ((tuple(size if isinstance(size, int) else -1 for size in sizes), inputs[0][1]),)
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
