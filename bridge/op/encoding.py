"""The argument text: everything but the tensors of one call, exactly, as one string attribute of the primitive.

`ms_ext/arguments.h` has the grammar, and reads it in C++.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator
from typing import Any


class Slot:
    """Stands for the tensor input at `position`."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position


class Size(Slot):
    """Stands for an int that is known only when a graph runs: the length of the tensor input at `position`, which is
    passed for this alone."""

    __slots__ = ()


def _bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def encode_number(value: bool | int | float | complex) -> str:
    if isinstance(value, bool):
        return f"b{int(value)};"
    if isinstance(value, int):
        return f"i{value};" if value < 2**63 else f"u{value};"
    if isinstance(value, float):
        return f"d{_bits(value)};"
    return f"c{_bits(value.real)},{_bits(value.imag)};"


def encode(value: Any) -> str:
    """The text of one bound argument; numbers in a tensor's place are `wrapped` by the caller."""
    if value is None:
        return "N"
    if isinstance(value, Slot):
        return "V" if isinstance(value, Size) else "T"
    if isinstance(value, str):
        return f"s{len(value.encode())}:{value}"
    if isinstance(value, list):
        return f"[{len(value)};" + "".join(map(encode, value))
    if isinstance(value, Wrapped):
        return "W" + encode_number(value.number)
    return encode_number(value)


class Wrapped:
    """A number in a tensor's place: PyTorch's wrapped number, which does not take part in dtype promotion."""

    __slots__ = ("number",)

    def __init__(self, number: bool | int | float | complex) -> None:
        self.number = number


class Reader:
    """Reads the values of a text one by one."""

    def __init__(self, text: str) -> None:
        self.data = text.encode()
        self.position = 0
        self.slots = 0

    @classmethod
    def of(cls, data: bytes, position: int) -> Reader:
        """What reads from there on."""
        reader = cls("")
        reader.data, reader.position = data, position
        return reader

    def until(self, end: bytes) -> str:
        stop = self.data.index(end, self.position)
        taken = self.data[self.position : stop]
        self.position = stop + 1
        return taken.decode()

    def double(self, end: bytes = b";") -> float:
        return struct.unpack(">d", bytes.fromhex(self.until(end)))[0]

    def rest(self) -> str:
        """What is not read yet."""
        return self.data[self.position :].decode()

    def value(self) -> Any:
        tag = self.data[self.position : self.position + 1]
        self.position += 1
        if tag == b"N":
            return None
        if tag in (b"T", b"V"):
            self.slots += 1
            return (Slot if tag == b"T" else Size)(self.slots - 1)
        if tag == b"W":
            return self.value()
        if tag in (b"i", b"u"):
            return int(self.until(b";"))
        if tag == b"b":
            return self.until(b";") == "1"
        if tag == b"d":
            return self.double()
        if tag == b"c":
            real = self.double(b",")
            return complex(real, self.double())
        if tag == b"s":
            size = int(self.until(b":"))
            self.position += size
            return self.data[self.position - size : self.position].decode()
        assert tag == b"[", tag
        return [self.value() for _ in range(int(self.until(b";")))]


# In front of an overload's text: the kernel has one more tensor, the state of the generator before the draw.
_REDRAWS = "R"


class Text(str):
    """The arguments of an overload's call but its tensors, as the kernel reads them.

    They become a string once, when the call is bound, because MindSpore tells primitives apart by strings. What asks
    for one of them asks its values.
    """

    @functools.cached_property
    def values(self) -> list[Any]:
        """The arguments in the schema's order, without generators and devices: a Slot for a tensor, a plain number for
        a wrapped one."""
        reader = Reader(self.removeprefix(_REDRAWS))
        values = []
        while reader.position < len(reader.data):
            values.append(reader.value())
        return values

    @property
    def redraws(self) -> bool:
        """Whether the overload's gradient draws again what the call drew."""
        return self.startswith(_REDRAWS)

    @functools.cached_property
    def inputs(self) -> int:
        """How many tensors the kernel takes for its gradient: its inputs, and the state of a draw."""
        return sum(1 for _ in _slots(self.values)) + self.redraws

    @functools.cached_property
    def lengths(self) -> tuple[int, ...]:
        """The positions of the inputs whose lengths are arguments."""
        return tuple(slot.position for slot in _slots(self.values) if isinstance(slot, Size))

    def drawing_again(self) -> Text:
        """The same for a kernel that takes the state of the generator, and draws from it."""
        return Text(_REDRAWS + self)


def text_of(values: Iterable[Any]) -> Text:
    """The text of bound arguments."""
    return Text("".join(map(encode, values)))


def _slots(values: list[Any]) -> Iterator[Slot]:
    for value in values:
        if isinstance(value, list):
            yield from _slots(value)
        elif isinstance(value, Slot):
            yield value
