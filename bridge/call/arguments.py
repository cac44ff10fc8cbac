"""Binds a call's arguments to an overload, by the rules of PyTorch's own argument parser and in its words."""

from __future__ import annotations

import contextlib
import itertools
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
import torch

from bridge.op import devices, dtypes
from bridge.op.encoding import Size, Slot, Text, Wrapped, text_of
from bridge.op.overload import Overload
from bridge.op.schema import Argument

_MEMORY_FORMATS = {
    torch.contiguous_format: "contiguous_format",
    torch.preserve_format: "preserve_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
}
_INT64 = range(-(2**63), 2**63)


class TensorMark:
    """Stands for a tensor whose data is not at hand: in graph mode, at compile time."""


class NumberMark:
    """Stands for a number that is known only when the graph runs.

    Args:
        type: MindSpore's name of its type: "Int64", "Float32", "Bool", ...
    """

    def __init__(self, type: str) -> None:
        self.type = type

    def as_tensor(self) -> TensorMark:
        """A tensor of no dimensions that holds it."""
        raise NotImplementedError

    def as_length(self) -> TensorMark:
        """A tensor of that length, without elements."""
        raise NotImplementedError


@dataclass
class Bound:
    """A call's arguments in the schema's order: its tensors, and everything else as text."""

    overload: Overload
    tensors: list[Any]
    text: Text
    reusable: bool
    """Whether the text depends on nothing but Python values: not on the data of a 0-d tensor."""


class Mismatch(TypeError):
    """The arguments do not fit the overload."""


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (ms.Tensor, TensorMark))


def _describe(value: Any) -> str:
    if _is_tensor(value):
        return "Tensor"
    if isinstance(value, (list, tuple)):
        items = [_describe(v) for v in value[:4]] + ["..."] * (len(value) > 4)
        return f"{type(value).__name__} of ({', '.join(items)})"
    if isinstance(value, torch.Tensor):
        return "torch.Tensor (convert it with mindspore.Tensor.from_numpy)"
    if isinstance(value, np.ndarray):
        return "numpy.ndarray (convert it with mindspore.Tensor)"
    if isinstance(value, NumberMark):
        return f"{value.type} that is known only when the graph runs"
    if isinstance(value, (ms.COOTensor, ms.CSRTensor, ms.RowTensor)):
        return f"{type(value).__name__} (sparse tensors are not supported)"
    return type(value).__name__


def _is_int(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


class Binder:
    """Binds one call to one overload. `fail` gives the error, in the words of PyTorch's parser.

    Args:
        may_read: whether a tensor without dimensions is taken for a number.
    """

    def __init__(
        self, overload: Overload, args: Sequence[Any], kwargs: Mapping[str, Any], may_read: bool = True
    ) -> None:
        self.overload = overload
        self.schema = overload.schema
        self.args = args
        self.kwargs = kwargs
        self.may_read = may_read
        self.tensors: list[Any] = []
        self.reads_data = False

    def fail(self, why: str) -> Mismatch:
        return Mismatch(f"{self.schema.packet}(): {why}")

    def bind(self) -> Bound:
        values = [self.value(*item) for item in self.assign()]
        self.refuse_pinned_memory(values)
        pairs = zip(values, self.schema.arguments, strict=True)
        encoded = [value for value, argument in pairs if argument.base not in ("Generator", "Device")]
        text = text_of(encoded)
        if self.overload.redraws:
            text = text.drawing_again()
        return Bound(self.overload, self.tensors, text, not self.reads_data)

    def assign(self) -> list[tuple[Argument, Any, int | None]]:
        """Each argument with its value and, if it was given by position, the position."""
        schema = self.schema
        if len(self.args) > len(schema.positional):
            raise self.fail(f"takes {len(schema.positional)} positional arguments but {len(self.args)} were given")
        named = dict(self.kwargs)
        if "input" in named and schema.arguments[0].name == "self" and "self" not in named:
            named["self"] = named.pop("input")  # PyTorch's documentation calls the first tensor input
        assigned: list[tuple[Argument, Any, int | None]] = []
        for position, argument in enumerate(schema.arguments):
            if not argument.keyword_only and position < len(self.args):
                if argument.name in named:
                    raise self.fail(f"argument '{argument.name}' was given by position and by name")
                assigned.append((argument, self.args[position], position + 1))
            elif argument.name in named:
                assigned.append((argument, named.pop(argument.name), None))
            elif argument.required:
                missing = [
                    a.name
                    for i, a in enumerate(schema.arguments)
                    if a.required and i >= len(self.args) and a.name not in self.kwargs
                ]
                raise self.fail(f"missing {len(missing)} required argument(s): {', '.join(map(repr, missing))}")
            else:
                assigned.append((argument, argument.default, None))
        for name in named:
            if name in {a.name for a in schema.arguments}:
                raise self.fail(f"argument '{name}' was given by position and by name")
            if name == "out":
                raise TypeError(f"{schema.packet}(): out= is not supported: MindSpore allocates the results")
            raise self.fail(f"got an unexpected keyword argument '{name}'")
        return assigned

    def value(self, argument: Argument, value: Any, position: int | None) -> Any:
        if value is None and argument.is_optional:
            return None
        try:
            if argument.is_list:
                return self.list_value(argument, value)
            return self.single(argument, value)
        except Mismatch as mismatch:
            if mismatch.args:
                raise
            where = f" (position {position})" if position else ""
            raise self.fail(
                f"argument '{argument.name}'{where} must be {argument.type_name}, not {_describe(value)}"
            ) from None

    def list_value(self, argument: Argument, value: Any) -> list[Any]:
        if argument.size and not isinstance(value, (list, tuple)):
            return [self.single(argument, value)] * argument.size
        if not isinstance(value, (list, tuple)):
            raise Mismatch
        if argument.base == "bool" and argument.size and len(value) != argument.size:
            raise self.fail(f"argument '{argument.name}' must have {argument.size} items, not {len(value)}")
        return [None if v is None and argument.items_optional else self.single(argument, v) for v in value]

    def single(self, argument: Argument, value: Any) -> Any:
        if isinstance(value, NumberMark) and argument.base == "int" and argument.name.startswith("dim"):
            raise self.not_constant(value)  # it is no size
        return _CONVERTERS[argument.base](self, value)

    def number_in(self, value: Any) -> Any:
        """The Python number in a NumPy scalar or in a 0-d tensor, else the value itself."""
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, NumberMark):
            return self.unknown(value)
        if self.may_read and isinstance(value, ms.Tensor) and value.ndim == 0:
            self.reads_data = True
            return value.item()
        return value

    def unknown(self, value: NumberMark) -> Size:
        """The place of an int that is known only when the graph runs."""
        if not value.type.startswith("Int") or not self.schema.is_aten:
            raise self.not_constant(value)
        self.tensors.append(value.as_length())
        return Size(len(self.tensors) - 1)

    def has_doubles(self) -> bool:
        return any(tensor.dtype in (ms.float64, ms.complex128) for tensor in self.tensors)

    def not_constant(self, value: NumberMark) -> TypeError:
        return TypeError(
            f"{self.schema.packet}(): in graph mode, an argument that is no tensor has to be a constant, or a size of "
            f"an ATen operator: this one is {value.type}, which is known only when the graph runs"
        )

    # One converter for each base type. They raise an empty Mismatch, which `value` completes, or a whole one.

    def tensor(self, value: Any) -> Any:
        if _is_tensor(value):
            self.tensors.append(value)
            return Slot(len(self.tensors) - 1)
        if isinstance(value, NumberMark) and torch._C._should_allow_numbers_as_tensors(self.schema.packet):
            if not value.type.startswith("Int") and self.has_doubles():  # MindSpore's has the precision of float32
                raise self.not_constant(value)
            return self.tensor(value.as_tensor())
        is_number = isinstance(value, (numbers.Number, np.generic))
        if is_number and torch._C._should_allow_numbers_as_tensors(self.schema.packet):
            number = self.number(value)
            assert not isinstance(number, Size)
            return Wrapped(number)
        raise Mismatch

    def number(self, value: Any) -> bool | int | float | complex | Size:
        value = self.number_in(value)
        if isinstance(value, (bool, float, complex, Size)):
            return value
        if not _is_int(value):
            raise Mismatch
        if not -(2**63) <= value < 2**64:
            raise OverflowError(f"{self.schema.packet}(): {value} does not fit into 64 bits")
        return int(value)

    def integer(self, value: Any) -> int | Size:
        value = self.number_in(value)
        if isinstance(value, Size):
            return value
        if not _is_int(value):
            raise Mismatch
        if value not in _INT64:
            raise OverflowError(f"{self.schema.packet}(): {value} does not fit into 64 bits")
        return int(value)

    def floating(self, value: Any) -> float:
        value = self.number_in(value)
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise Mismatch
        try:
            return float(value)
        except OverflowError:
            raise OverflowError(f"{self.schema.packet}(): {value} does not fit into a float") from None

    def boolean(self, value: Any) -> bool:
        value = self.number_in(value)
        if not isinstance(value, bool):
            raise Mismatch
        return value

    def string(self, value: Any) -> str:
        if not isinstance(value, str):
            raise Mismatch
        if not value.isprintable() and any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"{self.schema.packet}(): {value!r} has surrogates, which UTF-8 cannot encode")
        return value

    def scalar_type(self, value: Any) -> str:
        if isinstance(value, torch.dtype) and value in dtypes.NAME_FROM_TORCH:
            return dtypes.NAME_FROM_TORCH[value]
        if isinstance(value, str) and value in dtypes.TORCH_DTYPES:
            return value
        try:
            if isinstance(value, ms.dtype.Type):
                return dtypes.NAME_FROM_TORCH[dtypes.to_torch(value)]
            if isinstance(value, torch.dtype):
                dtypes.to_mindspore(value)
        except TypeError as error:
            raise TypeError(f"{self.schema.packet}(): {error}") from None
        raise Mismatch

    def layout(self, value: Any) -> str:
        if value is not torch.strided and not (isinstance(value, str) and value == "strided"):
            raise self.fail(f"layout {value} is not supported: MindSpore's tensors are strided")
        return "strided"

    def memory_format(self, value: Any) -> str:
        name = _MEMORY_FORMATS.get(value) if isinstance(value, torch.memory_format) else value
        if not isinstance(name, str) or name not in _MEMORY_FORMATS.values():
            raise Mismatch
        return name

    def device(self, value: Any) -> None:
        """A result lies where MindSpore computes it; a device argument may only say the same."""
        try:
            asked = torch.device(value)
        except (RuntimeError, TypeError):
            raise Mismatch from None
        current = torch.device(devices.torch_name(devices.target()))
        if asked.type != current.type or (asked.type == "cuda" and asked.index not in (None, current.index)):
            raise ValueError(f"{self.schema.packet}(): device {value} is not MindSpore's device, which is {current}")

    def generator(self, value: Any) -> None:
        if not isinstance(value, torch.Generator):
            raise Mismatch
        raise TypeError(
            f"{self.schema.packet}(): a generator is not supported: seed with bridge.manual_seed or mindspore.set_seed"
        )

    def refuse_pinned_memory(self, values: list[Any]) -> None:
        for argument, value in zip(self.schema.arguments, values, strict=True):
            if argument.name == "pin_memory" and value:
                raise ValueError(f"{self.schema.packet}(): pinned memory is not supported")


_CONVERTERS: dict[str, Callable[[Binder, Any], Any]] = {
    "Tensor": Binder.tensor,
    "number": Binder.number,
    "int": Binder.integer,
    "float": Binder.floating,
    "bool": Binder.boolean,
    "str": Binder.string,
    "ScalarType": Binder.scalar_type,
    "Layout": Binder.layout,
    "MemoryFormat": Binder.memory_format,
    "Device": Binder.device,
    "Generator": Binder.generator,
}
CONVERTIBLE = frozenset(_CONVERTERS)


def _packed(args: Sequence[Any]) -> tuple[Any, ...] | None:
    """`permute(x, 0, 1)` as `permute(x, [0, 1])`: PyTorch takes a last list of ints unpacked."""
    first = next((i for i, a in enumerate(args) if not _is_tensor(a)), len(args))
    sizes = args[first:]
    if sizes and all(_is_int(size) or isinstance(size, NumberMark) for size in sizes):
        return (*args[:first], list(sizes))
    return None


def _listed(overload: Overload, args: Sequence[Any]) -> tuple[Any, ...] | None:
    """`cat(x, y)` as `cat([x, y])`: the tensors from where the overload wants a list of them, as that list."""
    for first, argument in enumerate(overload.schema.positional[: len(args)]):
        if argument.base == "Tensor" and argument.is_list and _is_tensor(args[first]):
            last = next((i for i in range(first, len(args)) if not _is_tensor(args[i])), len(args))
            return (*args[:first], list(args[first:last]), *args[last:])
    return None


def _hint(packet: str, overloads: Sequence[Overload], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """What to write instead, if the call would fit with its tensors in a list."""
    for overload in overloads:
        arguments = _listed(overload, args)
        if arguments is not None:
            with contextlib.suppress(Exception):
                Binder(overload, arguments, kwargs).bind()
                return f"\nIt takes its tensors in a list: {packet}({_description(arguments, kwargs)})"
    return ""


def _description(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return ", ".join([*map(_describe, args), *(f"{name}={_describe(value)}" for name, value in kwargs.items())])


def resolve(packet: str, overloads: Sequence[Overload], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Bound:
    """Bind the call to the first overload that it fits.

    An overload that takes all tensors as tensors goes before one that takes a tensor without dimensions for a number,
    in which it would lose its gradient.

    Raises TypeError in the words of PyTorch's parser: what is wrong with the argument if there is one overload, the
    list of signatures if there are several, and what to write if tensors should be in a list.
    """
    mismatches: list[Mismatch] = []
    packed = _packed(args)
    forms = [args] if packed is None else [args, packed]
    ways = [True] if len(overloads) == 1 else [False, True]
    for may_read, arguments, overload in itertools.product(ways, forms, overloads):
        try:
            return Binder(overload, arguments, kwargs, may_read).bind()
        except Mismatch as mismatch:
            mismatches.append(mismatch)
    hint = _hint(packet, overloads, args, kwargs)
    if len(overloads) == 1:
        raise TypeError(f"{mismatches[0]}{hint}")
    expected = "\n".join(f" * {overload.schema.text}" for overload in overloads)
    raise TypeError(
        f"{packet}() received an invalid combination of arguments - got ({_description(args, kwargs)}), "
        f"but expected one of:\n{expected}{hint}"
    )
