"""What PyTorch's optimizer does in a step: its calls of ATen, and the numbers in them as they follow from others.

An optimizer computes with the learning rate and with the step, which it reads from a tensor. While it runs, both are
floats that note what is made of them. So the numbers of a later step are known without its Python.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_READ = torch.ops.aten._local_scalar_dense.default


class _Number(float):
    """A number of one step. What is computed from it is another."""

    recording: Recording
    register: int

    def __neg__(self) -> Any:
        return self.recording.computed("*", -1.0, self, -float(self))


def _computing(name: str, sign: str) -> Callable[..., Any]:
    own = getattr(float, name)

    def operation(self: _Number, other: Any) -> Any:
        value = own(self, other)
        if value is NotImplemented:
            return value
        left, right = (other, self) if name.startswith("__r") else (self, other)
        return self.recording.computed(sign, left, right, value)

    return operation


def _losing(name: str) -> Callable[..., Any]:
    own = getattr(float, name)

    def operation(self: _Number, *others: Any) -> Any:
        self.recording.lost = f"it calls {name} of a number of the step"
        return own(self, *others)

    return operation


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**"}
for _name, _sign in _SIGNS.items():
    for _method in (f"__{_name}__", f"__r{_name}__"):
        setattr(_Number, _method, _computing(_method, _sign))
# What Python decides by them may be otherwise in another step. What it makes of a number without these methods, as by
# math.sqrt, stays a constant, in which two recordings differ.
for _name in (
    "abs", "bool", "ceil", "divmod", "eq", "floor", "floordiv", "ge", "gt", "hash", "int", "le", "lt", "mod", "ne",
    "rdivmod", "rfloordiv", "rmod", "round", "trunc",
):  # fmt: skip
    setattr(_Number, f"__{_name}__", _losing(f"__{_name}__"))


class Recording:
    """One step, as ms_ext/programs/python/repeated_step.h takes it.

    Args:
        gradients: of the step.
        known: the other tensors that a step works on, which stay.

    Attributes:
        parts: of the step.
        lost: why no other step follows from it, or "".
    """

    def __init__(self, gradients: Sequence[torch.Tensor], known: Iterable[torch.Tensor]) -> None:
        self.parts: list[tuple[Any, ...]] = []
        self.lost = ""
        self._registers: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._count = 0
        self._known = {id(tensor): tensor for tensor in known}
        self._constants: dict[int, torch.Tensor] = {}  # that the step made of numbers
        self._numbers: list[float] = []  # that the function which runs was given
        self._found: list[_Number] = []  # of these, those that its calls were given
        self._paused = False
        for gradient in gradients:
            if self._register(gradient) is not None:
                self.lost = "two parameters have one gradient"
            self._keep(gradient)

    def run(self, step: Callable[[], Any], groups: Sequence[dict[str, Any]]) -> None:
        """Take a step, whose learning rates the groups have."""
        rates = [group["lr"] for group in groups]
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = self._number(rate)
        try:
            with _Functions(self), _Calls(self):
                step()
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate

    def is_as(self, other: Recording) -> bool:
        """Whether both steps follow from the same parts."""
        return self._same(self.parts, other.parts)

    def _same(self, own: Any, other: Any) -> bool:
        if type(own) is not type(other):
            return False
        if isinstance(own, (list, tuple)):
            return len(own) == len(other) and all(map(self._same, own, other))
        if id(own) in self._constants:
            return own.dtype == other.dtype and torch.equal(own, other)
        return own is other if isinstance(own, torch.Tensor) else bool(own == other)

    def _keep(self, tensor: torch.Tensor) -> int:
        self._registers[id(tensor)] = weakref.ref(tensor), self._count
        self._count += 1
        return self._count - 1

    def _number(self, value: float) -> _Number:
        number = _Number(value)
        number.recording, number.register = self, self._count
        self._count += 1
        return number

    def computed(self, sign: str, left: Any, right: Any, value: Any) -> Any:
        """What Python computed from two operands, of which one is a number of the step, as such a number."""
        if type(value) is not float or any(not isinstance(operand, (float, int)) for operand in (left, right)):
            self.lost = f"it computes {value} by {sign}"
            return value
        result = self._number(value)
        operands = [(x.register,) if type(x) is _Number else float(x) for x in (left, right)]
        self.parts.append(("number", sign, *operands, result.register))
        return result

    def read(self, tensor: torch.Tensor) -> Any:
        """The float in a tensor, as a number of the step."""
        with self._without():
            value = tensor.item()
        if type(value) is not float:
            self.lost = f"it reads {value}"
            return value
        result = self._number(value)
        self.parts.append(("read", self._operand(tensor), result.register))
        return result

    def constant(self, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """A tensor that the step makes, the same in each step."""
        with self._without():
            tensor = make()
        self._constants[id(tensor)] = tensor
        return tensor

    @contextlib.contextmanager
    def _without(self) -> Iterator[None]:
        before, self._paused = self._paused, True
        yield
        self._paused = before

    @contextlib.contextmanager
    def function(self, args: Any) -> Iterator[None]:
        """While a function of PyTorch's runs, which was given these."""
        before = self._numbers, self._found
        self._numbers, self._found = [x for x in flat(args) if isinstance(x, float)], []
        yield
        numbers = [x for x in self._numbers if type(x) is _Number]
        if any(all(number is not found for found in self._found) for number in numbers):
            self.lost = "a function makes another number of one of the step's"
        self._numbers, self._found = before

    def called(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any], results: Any) -> None:
        """Note a call that ATen's dispatcher has made."""
        if self._paused or op.namespace == "profiler":
            return
        if op is _READ:
            self.lost = "it reads a tensor"
            return
        arguments = []
        for i, argument in enumerate(op._schema.arguments):
            value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
            if argument.is_write and any(id(x) in self._constants for x in flat([value])):
                self.lost = "it writes to a constant"
            arguments.append(self._operand(value))
        kept = [self._result(result) for result in flat([results])] if op._schema.returns else []
        self.parts.append(("call", op._schema.name, op._schema.overload_name, arguments, kept))

    def _result(self, result: Any) -> int | None:
        if result is None or self._is_known(result):
            return None
        return self._keep(result)

    def _is_known(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._known or id(tensor) in self._constants or self._register(tensor) is not None

    def _register(self, tensor: torch.Tensor) -> int | None:
        found, register = self._registers.get(id(tensor), (None, None))
        return register if found is not None and found() is tensor else None

    def _operand(self, value: Any) -> Any:
        """An argument, or one item of a list, as a part has it."""
        if isinstance(value, (list, tuple)):
            return [self._operand(item) for item in value]
        if isinstance(value, torch.Tensor):
            if not self._is_known(value):
                self.lost = "it has a tensor that is neither a state nor made in the step"
            register = self._register(value)
            return value if register is None else (register,)
        if isinstance(value, float):
            return self._of_function(value)
        return value

    def _of_function(self, value: float) -> Any:
        """A float that a call was given: what it stands for in the arguments of the function that made the call."""
        alike = [number for number in self._numbers if float.__eq__(number, value)]
        numbers = [number for number in alike if type(number) is _Number]
        if not numbers:
            return value
        if len(numbers) < len(alike):
            self.lost = "a constant is equal to a number of the step"
        unused = [*numbers]
        for found in self._found:
            unused = _without_first(unused, found)
        number = (unused or numbers)[0]
        self._found.append(number)
        return (number.register,)


class _Functions(TorchFunctionMode):
    """Gives PyTorch's functions the numbers of a step."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.item:
            return self._recording.read(args[0])
        if func is torch.tensor and not any(type(x) is _Number for x in flat(args)):
            return self._recording.constant(lambda: func(*args, **kwargs))
        with self._recording.function([*args, *kwargs.values()]):
            return func(*args, **kwargs)


class _Calls(TorchDispatchMode):
    """Notes the calls."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        results = func(*args, **kwargs)
        self._recording.called(func, args, kwargs, results)
        return results


def _without_first(numbers: list[_Number], number: _Number) -> list[_Number]:
    """The numbers but for the first that is this object."""
    for i, one in enumerate(numbers):
        if one is number:
            return numbers[:i] + numbers[i + 1 :]
    return numbers


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    else:
        yield value
