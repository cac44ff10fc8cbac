"""The text of a program, which ms_ext/programs/program.cpp reads: the grammar of bridge/op/encoding.py, with the bytes
of constants."""

from __future__ import annotations

from typing import Any

import torch

from bridge.op import dtypes, schema
from bridge.op.encoding import Slot, Wrapped, encode
from bridge.programs.calls import DEFAULT, Call, Number, Refusal, Register, in_line
from bridge.programs.constant_calls import constant_calls
from bridge.programs.listing import Listing, last_uses, origins


def text(listing: Listing) -> bytes:
    """The text of a program, but for its lines."""
    return _Writer(listing).text()


def lines(listing: Listing) -> bytes:
    """The rest of the text: where in the user's program the calls stand, for errors."""
    places = [in_line(call.where) for call in listing.calls]
    positions = {place: position for position, place in enumerate(dict.fromkeys(places))}
    return (encode([*positions]) + encode([positions[place] for place in places])).encode()


class _Writer:
    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._numbers: dict[int, int] = {}
        self._operands: list[int] = []
        for number in (*listing.inputs, *listing.constants):
            self._numbers[number] = len(self._numbers)
        for call in listing.calls:
            for result in call.results:
                if result is not None:
                    self._numbers.setdefault(result, len(self._numbers))

    def text(self) -> bytes:
        listing = self._listing
        parts = [encode(len(listing.inputs)).encode(), encode(len(self._numbers)).encode()]
        parts.append(b"[%d;" % len(listing.constants))
        parts += map(_constant, listing.constants.values())
        parts.append(b"[%d;" % len(listing.calls))
        constant = constant_calls(listing)
        donated: dict[int, list[tuple[int, int]]] = {}
        for position, (origin, result) in origins(listing).items():
            if origin not in constant:
                donated.setdefault(origin, []).append((result, position))
        for i, (call, last) in enumerate(zip(listing.calls, last_uses(listing, constant), strict=True)):
            parts.append(self._call(call, i in constant, last, donated.get(i, [])).encode())
        parts.append(b"[%d;" % len(listing.outputs))
        for output in listing.outputs:
            layouts = "".join(map(self._layout, output.registers))
            head = encode(list(output.shape)) + encode(output.is_memory)
            parts.append(f"{head}[{len(output.registers)};{layouts}".encode())
        parts.append(encode(self._operands).encode())
        return b"".join(parts)

    def _layout(self, number: int) -> str:
        tensor = self._listing.tape.tensors[number]
        values = [self._numbers[number], list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]
        return "".join(map(encode, values))

    def _call(self, call: Call, is_constant: bool, last: list[int], donated: list[tuple[int, int]]) -> str:
        given, values = "", ""
        for raw, value in zip(call.op._schema.arguments, call.arguments, strict=True):
            argument = schema.argument(raw)
            if value is DEFAULT or (argument.base == "Generator" and value is None):
                given += "0"
            elif isinstance(value, Number):
                given += "n"
                values += encode(self._argument("float", value, call))
            elif argument.base == "Device" and value is not None:
                given += "c" if torch.device(value).type == "cpu" else "h"
            else:
                given += "1"
                values += encode(self._argument(argument.base, value, call))
        unused = set(last) - set(call.operands)
        results = [-1 if r is None or r in unused else self._numbers[r] for r in call.results]
        freed = [self._numbers[number] for number in last if number not in unused]
        places = [[result for result, _ in donated], [output for _, output in donated]]
        head = encode(call.name) + encode(is_constant) + encode(call.without_gradient) + encode(given)
        return head + values + "".join(map(encode, [results, freed, *places]))

    def _argument(self, base: str, value: Any, call: Call) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._argument(base, item, call) for item in value]
        if isinstance(value, Register):
            self._operands.append(self._numbers[value.number])
            return Slot(0)
        if value is None:
            return None
        if base == "Tensor":
            return Wrapped(value)
        if base == "ScalarType":
            return dtypes.name(value)
        if base in ("Layout", "MemoryFormat"):
            return str(value).removeprefix("torch.")
        convert = {"int": int, "float": float, "bool": bool, "str": str}.get(base)
        if base != "number" and convert is None:
            raise Refusal(f"{call.name}: a graph has no form for an argument of the type {base}")
        return value if convert is None else convert(value)


def _constant(tensor: torch.Tensor) -> bytes:
    data = tensor.detach().cpu().contiguous()
    raw = data.reshape(-1).view(torch.uint8).numpy().tobytes() if data.numel() else b""
    sizes = "".join(map(encode, [dtypes.name(data.dtype), list(data.shape), tensor.device.type == "cpu"]))
    return sizes.encode() + b"s%d:" % len(raw) + raw
