"""Floats that Python takes from tensors whose data is not known: `if torch.rand(1).item() < p:`,
`x * y.abs().max().item()`; and integers that floats follow from, or that are only returned.

While a function is captured, what stands for such a float computes as a tensor of one float64, whose arithmetic is that
of Python's floats. Compared, it is a question (guards.py). `int` of it is a size (data_sizes.py).
Where PyTorch takes it for a tensor's operand, a float that nobody else has stands for it, and in the call's arguments
the number that the program has when it runs.

An integer is a size, unless one program does for all: where Python needs no integer, as in `min(1, step.item() / 9)`,
what stands for it computes as an int64. Where programs of two sizes differ in what the function gives, it is a size
when Python needs it.
"""

from __future__ import annotations

import contextlib
import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map_only

from bridge.op import devices
from bridge.programs.calls import AsksForData, Number, Refusal, no_modes
from bridge.programs.drawn_arrays import computed, is_given, note_function, note_given
from bridge.programs.guards import is_integer
from bridge.programs.replaced import Replacement

_OWN_ITEM = torch.Tensor.item
# What may take one: PyTorch computes nothing else with the number, forward or backward.
_TAKING = {
    "__add__", "__div__", "__eq__", "__ge__", "__gt__", "__iadd__", "__idiv__", "__imul__", "__isub__",
    "__itruediv__", "__le__", "__lt__", "__mul__", "__ne__", "__radd__", "__rdiv__", "__rmul__", "__rsub__",
    "__rtruediv__", "__sub__", "__truediv__", "add", "add_", "clamp", "clamp_", "clamp_max", "clamp_min", "clip",
    "div", "div_", "divide", "eq", "fill_", "full", "full_like", "ge", "gt", "le", "lt", "masked_fill", "masked_fill_",
    "mul", "mul_", "multiply", "ne", "new_full", "rsub", "scalar_tensor", "sub", "sub_", "subtract", "true_divide",
}  # fmt: skip
# What may where nothing is differentiated: its gradient has other numbers that follow from this one.
_TAKING_WITHOUT_GRADIENT = {"lerp", "lerp_"}
# Those of them whose result has the number's dtype.
_MAKING = {"full", "scalar_tensor"}
# Functions of math that give floats.
_MATH = (
    "sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "pow", "hypot", "fabs", "fmod", "erf", "erfc", "degrees",
    "radians",
)  # fmt: skip
_REFUSED = "a float that depends on data is {}, which a graph does not follow: PyNative mode does"
# What stands for the first in PyTorch's arguments: nobody else has it.
_FIRST = 0.7316498730285
_DIVIDED = "float division by zero"  # Python's words
_NO_DTYPE = "numpy.object_"  # PyTorch says so of an array with such floats in it
# What an object needs to be one, whatever it stands for.
_OF_OBJECTS = {
    "__new__", "__init_subclass__", "__subclasshook__", "__getattribute__", "__setattr__", "__delattr__", "__dir__",
    "__getnewargs__", "__getstate__", "__reduce__", "__reduce_ex__", "__sizeof__", "from_bytes",
}  # fmt: skip


def _refusal(what: str, frame: FrameType | None = None) -> Refusal:
    note_function(frame or sys._getframe(2))
    return AsksForData(_REFUSED.format(what))


def _refused_number(frame: FrameType | None = None) -> Refusal:
    """Something takes a known number, as a function of math does, or torch.tensor."""
    note_given()
    return _refusal("given to something that takes a known number, as float() does", frame or sys._getframe(2))


def _computed(function: Callable[..., Any], *args: Any) -> Any:
    """A float that Python or NumPy computes from such a one, as they compute it."""
    if devices.target() == "GPU" or any(isinstance(value, (np.ndarray, torch.Tensor)) for value in args):
        raise _refusal(f"given to {function.__name__}")
    return computed(function, *args)


def _of_math(function: Callable[..., float]) -> Callable[..., Any]:
    def compute(*args: Any) -> Any:
        return _computed(function, *args) if any(type(value) is DataFloat for value in args) else function(*args)

    return compute


class DataFloats:
    """Those of one run.

    Args:
        register: gives the register of a tensor.
        bounds: gives the least and the largest number that a tensor may have; nothing if they are not known.
        is_late: whether a tensor has an integer that is no size until Python needs it.
        may_know: whether such an integer may be one. Compared, it is a question if not.
    """

    def __init__(
        self,
        register: Callable[[torch.Tensor], int],
        bounds: Callable[[torch.Tensor], tuple[float, ...]],
        is_late: Callable[[torch.Tensor], bool],
        may_know: bool,
    ) -> None:
        self._register = register
        self.bounds = bounds
        self._is_late = is_late
        self.may_know = may_know
        self._numbers: dict[float, Number] = {}  # by what stands for them

    def replacements(self) -> list[Replacement]:
        """Of the methods of tensors that give Python's numbers."""

        def item(tensor: torch.Tensor) -> Any:
            if self._is_late(tensor):
                return DataInteger(self, tensor.detach().reshape(()).to(torch.int64, copy=True))
            try:
                return _OWN_ITEM(tensor)
            except AsksForData:
                if not tensor.dtype.is_floating_point:
                    raise
            return DataFloat(self, tensor.detach().reshape(()).to(torch.float64, copy=True))

        def of_number(function: Callable[[Any], Any]) -> Callable[[torch.Tensor], Any]:
            own = getattr(torch.Tensor, f"__{function.__name__}__", None)

            def method(tensor: torch.Tensor) -> Any:
                if function is bool and is_integer(tensor.dtype):
                    tensor = tensor != 0  # a question, and no size
                return function(item(tensor)) if own is None or tensor.dtype.is_floating_point else own(tensor)

            return method

        numbers = [
            Replacement(torch.Tensor, f"__{function.__name__}__", of_number(function))
            for function in (bool, int, math.floor, math.ceil)
        ]
        of_math = [Replacement(math, name, _of_math(getattr(math, name))) for name in (_MATH if is_given() else ())]
        return [Replacement(torch.Tensor, "item", item), *numbers, *of_math]

    def put(self, arguments: list[Any]) -> None:
        """Put the numbers into a call's arguments that take them."""
        for i, value in enumerate(arguments):
            if type(value) is float and value in self._numbers:
                arguments[i] = self._numbers[value]

    def call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a function of PyTorch's gives for arguments among which such floats are."""
        given = [self._stand_in(value) for value in args]
        return function(*given, **{name: self._stand_in(value) for name, value in kwargs.items()})

    def _stand_in(self, value: Any) -> Any:
        if type(value) is not DataFloat:
            return value
        found = _FIRST + len(self._numbers) * 2.0**-40
        self._numbers[found] = Number(self._register(value.tensor))
        return found


class DataFloat:
    """Stands for one.

    Args:
        floats: those of the run.
        tensor: has it, on the device of the tensor that it was taken from.
    """

    depends_on_data = True

    def __init__(self, floats: DataFloats, tensor: torch.Tensor) -> None:
        self._floats = floats
        self.tensor = tensor

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float

    def item(self) -> DataFloat:
        return self

    def __float__(self) -> float:
        raise _refused_number()

    __complex__ = __hash__ = __float__  # type: ignore[assignment]

    def __format__(self, specification: str) -> str:
        raise _refusal("written as text")

    def __str__(self) -> str:
        return format(self)

    def __bool__(self) -> bool:
        return bool(self.tensor != 0)

    def __int__(self) -> int:
        return self._integer(torch.trunc)

    __trunc__ = __int__

    def __floor__(self) -> int:
        return self._integer(torch.floor)

    def __ceil__(self) -> int:
        return self._integer(torch.ceil)

    def __round__(self, digits: int | None = None) -> Any:
        return self._integer(torch.round) if digits is None else _computed(round, self, digits)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        is_plain = method == "__call__" and not kwargs and ufunc.nout == 1 and getattr(np, ufunc.__name__, 0) is ufunc
        return _computed(ufunc, *inputs) if is_plain else NotImplemented

    def __neg__(self) -> DataFloat:
        return self._with(-self.tensor)

    def __pos__(self) -> DataFloat:
        return self

    def __abs__(self) -> DataFloat:
        return self._with(self.tensor.abs())

    def _integer(self, rounded: Callable[[torch.Tensor], torch.Tensor]) -> int:
        with no_modes():
            bounds = [rounded(torch.tensor(bound, dtype=torch.float64)) for bound in self._floats.bounds(self.tensor)]
            integers = {int(bound) for bound in bounds}
        return integers.pop() if len(integers) == 1 else int(rounded(self.tensor).to(torch.int64).item())

    def _with(self, tensor: torch.Tensor) -> DataFloat:
        return DataFloat(self._floats, tensor)

    def _computed(self, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        a, b = (_operand(value) for value in (left, right))
        if a is NotImplemented or b is NotImplemented:
            return NotImplemented
        if operation is operator.truediv and isinstance(b, torch.Tensor):
            torch.ops.aten._assert_async.msg(b != 0, _DIVIDED)
        elif operation is operator.truediv and b == 0:
            raise ZeroDivisionError(_DIVIDED)
        return self._with(operation(a, b))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [value for value in (*args, *(kwargs or {}).values()) if type(value) is DataFloat]
        name = getattr(func, "__name__", str(func))
        is_differentiated = torch.is_grad_enabled() and any(map(_has_gradient, (*args, *(kwargs or {}).values())))
        if not given or name not in (_TAKING if is_differentiated else _TAKING | _TAKING_WITHOUT_GRADIENT):
            raise _refusal(f"given to {name}")
        return given[0]._floats.call(func, args, kwargs or {})


class DataInteger:
    """Stands for an integer until Python needs it. Its sums, differences and products are such ones, and what a
    division by a constant gives.

    Args:
        floats: those of the run.
        tensor: has it, as an int64, on the device of the tensor that it was taken from.
    """

    depends_on_data = True

    def __init__(self, floats: DataFloats, tensor: torch.Tensor) -> None:
        self._floats = floats
        self._known: int | None = None
        self.tensor = tensor

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    @property
    def known(self) -> int:
        """The integer, which is a size now."""
        if self._known is None:
            self._known = int(_OWN_ITEM(self.tensor))
        return self._known

    def item(self) -> DataInteger:
        return self

    @property
    def as_float(self) -> DataFloat:
        return DataFloat(self._floats, self.tensor.to(torch.float64))

    def __bool__(self) -> bool:
        return bool(self.known if self._floats.may_know else self.tensor != 0)

    def __hash__(self) -> int:
        return hash(self.known)

    def __neg__(self) -> DataInteger:
        return DataInteger(self._floats, -self.tensor)

    def __pos__(self) -> DataInteger:
        return self

    def __abs__(self) -> DataInteger:
        return DataInteger(self._floats, self.tensor.abs())

    def _computed(self, operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        if operation is not operator.truediv and not any(_is_float(value) for value in (left, right)):
            a, b = (value.tensor if type(value) is DataInteger else value for value in (left, right))
            are_integers = all(isinstance(value, int) for value in (left, right))
            return DataInteger(self._floats, operation(a, b)) if are_integers else NotImplemented
        a, b = (value.as_float if type(value) is DataInteger else value for value in (left, right))
        return operation(a, b) if isinstance(a, (int, float)) and isinstance(b, (int, float)) else NotImplemented

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # To floating-point tensors the integer is a float.
        are_floating = any(map(_is_floating, (*args, *kwargs.values())))
        is_one = are_floating and getattr(func, "__name__", "") in _TAKING - _MAKING

        def taken(integer: DataInteger) -> Any:
            return integer.as_float if is_one else integer.known

        args, kwargs = tree_map_only(DataInteger, taken, (args, kwargs))
        return func(*args, **kwargs)


def _has_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _is_float(value: Any) -> bool:
    return isinstance(value, float)


def _operand(value: Any) -> Any:
    """What an operand is for PyTorch; NotImplemented if it is no number."""
    if type(value) is DataInteger:
        value = value.as_float
    if type(value) is DataFloat:
        return value.tensor
    return float(value) if isinstance(value, (int, float)) else NotImplemented


def _comparing(operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def method(self: DataFloat, other: Any) -> Any:
        value = _operand(other)
        return value if value is NotImplemented else bool(operation(self.tensor, value))

    return method


def _comparing_integers(operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def method(self: DataInteger, other: Any) -> Any:
        if _is_float(other):
            return operation(self.as_float, other)
        if self._floats.may_know:
            return operation(self.known, other.known if type(other) is DataInteger else other)
        value = other.tensor if type(other) is DataInteger else other
        return bool(operation(self.tensor, value)) if isinstance(other, int) else NotImplemented

    return method


def _computing(operation: Callable[[Any, Any], Any], is_reflected: bool) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        return self._computed(operation, *((other, self) if is_reflected else (self, other)))

    return method


def _by_python(function: Callable[..., Any], is_reflected: bool) -> Callable[..., Any]:
    def method(self: DataFloat, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        return _computed(function, *((other, self) if is_reflected else (self, other)))

    return method


def _as_known(name: str) -> Callable[..., Any]:
    own = getattr(int, name)

    def method(self: DataInteger, *others: Any) -> Any:
        return own(self.known, *(other.known if type(other) is DataInteger else other for other in others))

    return method


def _with_floats(name: str, is_reflected: bool) -> Callable[..., Any]:
    """A method of integers, which give a float together with one."""
    own = f"__{'r' * is_reflected}{name}__"
    as_integer, as_float = _as_known(own), getattr(DataFloat, own)

    def method(self: DataInteger, other: Any) -> Any:
        if _is_float(other):
            return as_float(self.as_float, other)
        if name in _DIVISIONS and not is_reflected and type(other) is int and other > 0:
            return DataInteger(self._floats, _DIVISIONS[name](self.tensor, other))
        return as_integer(self, other)

    return method


_DIVISIONS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "mod": torch.remainder, "floordiv": torch.floor_divide
}  # fmt: skip
for _name in ("pow", "mod", "floordiv"):
    _function = getattr(operator, _name)
    setattr(DataFloat, f"__{_name}__", _by_python(_function, is_reflected=False))
    setattr(DataFloat, f"__r{_name}__", _by_python(_function, is_reflected=True))
    setattr(DataInteger, f"__{_name}__", _with_floats(_name, is_reflected=False))
    setattr(DataInteger, f"__r{_name}__", _with_floats(_name, is_reflected=True))
for _name in ("eq", "ge", "gt", "le", "lt", "ne"):
    setattr(DataFloat, f"__{_name}__", _comparing(getattr(operator, _name)))
    setattr(DataInteger, f"__{_name}__", _comparing_integers(getattr(operator, _name)))
for _name in dir(int):
    if _name not in vars(DataInteger) and _name not in _OF_OBJECTS and callable(getattr(int, _name)):
        setattr(DataInteger, _name, _as_known(_name))
for _kind in (DataFloat, DataInteger):
    for _name in ("add", "mul", "sub", "truediv"):
        setattr(_kind, f"__{_name}__", _computing(getattr(operator, _name), is_reflected=False))
        setattr(_kind, f"__r{_name}__", _computing(getattr(operator, _name), is_reflected=True))


@contextlib.contextmanager
def refusing_others() -> Iterator[None]:
    """An error inside that something does not take what stands for such a float is a refusal."""
    try:
        yield
    except (TypeError, RuntimeError) as error:
        if _NO_DTYPE in str(error):
            note_given()
        if isinstance(error, Refusal) or not any(kind.__name__ in str(error) for kind in (DataFloat, DataInteger)):
            raise
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        refusal = _refused_number(trace and trace.tb_frame)
        raise refusal.with_traceback(error.__traceback__) from None
