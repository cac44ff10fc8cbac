"""Random calls of every operator: most are meant to be valid, some are wild."""

from __future__ import annotations

import random
from typing import Any

import mindspore as ms
import numpy as np
import torch

from bridge import aten
from bridge._mindspore import wait
from bridge.op import dtypes
from bridge.op.overload import overload
from bridge.op.table import Fact, facts, packets
from bridge.primitive.tensors import from_torch

# What a call may raise.
EXPECTED = (TypeError, ValueError, RuntimeError, IndexError, OverflowError)

WORDS = (
    *("none", "mean", "sum", "tanh", "constant", "reflect", "linear", "floor", "trunc", "fro", "nuc", "L", "U"),
    *("ij->ji", "ij,jk->ik", "valid", "same", "left", "lower", "reduced", "amax", "", "junk", "\0", "é"),
)


class Caller:
    """Makes the calls of a seed; each call has its own random numbers, so that it can be made alone."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dtypes = list(dtypes.TORCH_DTYPES.values())
        self.names = [name for packet in sorted(packets()) for name in sorted(packets()[packet])]
        self.names = [name for name in self.names if Fact.CRASHES not in facts(name)]

    def make(self, number: int) -> tuple[str, list[Any], dict[str, Any]]:
        """The operator's name and the arguments of call `number`."""
        self.draw = random.Random(f"{self.seed} {number}")
        name = self.draw.choice(self.names)
        # Most calls are meant to be valid: one shape and dtype for all tensors.
        self.shape = self.random_shape()
        self.dtype = self.draw.choice(self.dtypes) if self.draw.random() < 0.3 else torch.float32
        self.wild = 0.03 if self.draw.random() < 0.5 else 0.0
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in overload(name).schema.arguments:
            if not argument.required and self.draw.random() < 0.5:
                continue
            value = self.value(argument)
            if argument.keyword_only or kwargs or len(args) != overload(name).schema.arguments.index(argument):
                kwargs[argument.name] = value
            else:
                args.append(value)
        if self.draw.random() < self.wild:
            kwargs["junk"] = 1
        if args and self.draw.random() < self.wild:
            args.pop()
        return name, args, kwargs

    def random_shape(self) -> tuple[int, ...]:
        rank = self.draw.choice([0, 1, 2, 2, 2, 3, 3, 4, 5])
        return tuple(self.draw.choice([0, 1, 2, 3, 3, 4, 5]) for _ in range(rank))

    def value(self, argument: Any) -> Any:
        if self.draw.random() < self.wild:
            return self.junk()
        if argument.is_optional and self.draw.random() < 0.4:
            return None
        if argument.is_list:
            return [self.single(argument) for _ in range(argument.size or self.draw.choice([0, 1, 1, 2, 2, 3, 4]))]
        return self.single(argument)

    def single(self, argument: Any) -> Any:
        if argument.items_optional and self.draw.random() < 0.3:
            return None
        return getattr(self, f"random_{argument.base}")()

    def random_Tensor(self) -> Any:
        shape = self.random_shape() if self.draw.random() < 0.25 else self.shape
        dtype = self.draw.choice(self.dtypes) if self.draw.random() < 0.15 else self.dtype
        if self.draw.random() < 0.15:
            dtype = torch.int64
        low, high = self.draw.choice([(0, 2), (-3, 4), (0, 6)])
        numbers = np.random.default_rng(self.draw.randrange(2**32)).uniform(low, high, shape)
        if self.draw.random() < 0.1:
            special = self.draw.choice([np.nan, np.inf, -np.inf, 1e30])
            numbers = np.where(numbers > 1, special, numbers)
        with np.errstate(all="ignore"):
            return from_torch(torch.as_tensor(numbers).to(dtype))

    def random_int(self) -> int:
        if self.draw.random() < 0.04:
            # 2^40 and not 2^31: a valid call that fills 8 GiB would only take long.
            return self.draw.choice([2**40, -(2**31), 2**62, 2**63 - 1, -(2**63), 2**63])
        return self.draw.choice([-2, -1, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5])

    def random_float(self) -> float:
        return self.draw.choice([0.0, 0.5, 1.0, 1e-5, -1.0, 2.0, 1e300, float("inf"), float("nan")])

    def random_number(self) -> Any:
        return self.draw.choice([self.random_float(), self.random_int(), True, 1 + 2j])

    def random_bool(self) -> bool:
        return self.draw.random() < 0.5

    def random_str(self) -> str:
        return self.draw.choice(WORDS)

    def random_ScalarType(self) -> Any:
        return self.draw.choice([*self.dtypes, ms.float32, ms.int64])

    def random_Layout(self) -> Any:
        return torch.strided

    def random_MemoryFormat(self) -> Any:
        return self.draw.choice([torch.contiguous_format, torch.preserve_format, torch.channels_last])

    def random_Device(self) -> str:
        return "cpu"

    def random_Generator(self) -> None:
        return None

    def junk(self) -> Any:
        plain: tuple[Any, ...]
        plain = None, "junk", {}, [], [None], object, 1.5, -1, 2**64, 10**400, True, 1j, (), [[]], b"bytes", range(3)
        others = np.ones(2), torch.ones(2), self.random_Tensor(), ms.float32, slice(1), float("nan")
        return self.draw.choice([*plain, *others])

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> str:
        """Make the call and wait for its end; returns "ok" or the class of an expected exception."""
        packet, _, overload = name.partition(".")
        operator = getattr(aten, packet)
        try:
            try:
                getattr(operator, overload or "default")(*args, **kwargs)
            finally:
                wait()
        except EXPECTED as error:
            assert "frame #0" not in str(error), f"a C++ backtrace: {error}"
            return type(error).__name__
        return "ok"


def describe(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(describe, value))}]"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{type(value).__name__}({tuple(value.shape)}, {value.dtype})"
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."
