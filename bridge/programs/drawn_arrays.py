"""What a function of the user's files draws or computes in Python: `torch.tensor(mask_of((batch, length), 0.05))`, as
SpecAugment does, and `x1, y1, x2, y2 = box_of(size, share)`, as CutMix does.

What such a function does with NumPy are no calls of PyTorch's. So all of it is one call of the program, whose kernel is
the function, each time that the program runs: it draws from the generator that the rest of the user's code draws from.
What stands for its arrays in a capture is for PyTorch's functions to take.

Which functions these are is found when something in them is refused in a capture: they are noted, and the module is
captured once more.
"""

from __future__ import annotations

import base64
import functools
import importlib
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, FunctionType
from typing import Any, TypeVar

import numpy as np
import torch

from bridge.programs.calls import Refusal, no_modes
from bridge.programs.kept_elsewhere import is_own
from bridge.programs.loaded_modules import Places
from bridge.programs.replaced import Replacement

T = TypeVar("T")
_PLAIN = (type(None), bool, int, float, str, np.ndarray)
_NUMBERS = (bool, int, float, np.bool_, np.int64, np.float64)
_USED = (
    "an array that {} draws is used by NumPy ({}), which a graph does not repeat: give it to torch.tensor or "
    "torch.from_numpy, or draw it in a function of your file that gives the last array"
)
_OTHER = (
    "{} gives {}, and gave {} when a graph was made of it, which takes no other shapes and dtypes: PyNative mode does"
)


class CaptureAgain(BaseException):
    """Something is refused that captures take from now on. The function's own code must not take it for an error."""


class _OfThread(threading.local):
    may_capture_again = False
    tries = False  # such a function runs by itself, and what it calls does


_thread = _OfThread()


def capture_again(capture: Callable[[], T]) -> T:
    """What a capture gives, which is made again whenever it finds such a function."""
    before, _thread.may_capture_again = _thread.may_capture_again, True
    try:
        while True:
            try:
                return capture()
            except CaptureAgain:  # once for each function
                continue
    finally:
        _thread.may_capture_again = before


_functions: dict[FunctionType, None] = {}  # these
_places = Places(lambda value: type(value) is FunctionType and value in _functions)
_is_given = False  # whether a function that takes known arrays and numbers has been given others


def is_given() -> bool:
    """Whether functions that take known arrays and numbers are to take others in captures."""
    return _is_given


def note_given() -> None:
    """One was given another.

    Raises:
        CaptureAgain: that was not known.
    """
    global _is_given
    if not _is_given and _thread.may_capture_again:
        _is_given = True
        raise CaptureAgain


def note_function(frame: FrameType | None) -> None:
    """Something is refused in the innermost function of a user's file that runs.

    Raises:
        CaptureAgain: that was not known.
    """
    while frame is not None and _thread.may_capture_again:
        code = frame.f_code
        function = frame.f_globals.get(code.co_name)
        if isinstance(function, FunctionType) and function.__code__ is code and is_own(code.co_filename):
            if function in _functions:
                return
            _functions[function] = None
            _places.forget()
            raise CaptureAgain
        frame = frame.f_back


class _Given:
    """Stands for a tensor among the arguments of a call that is written down, or for a number that depends on data."""

    def __init__(self, position: int, number: type | None) -> None:
        self.position, self.number = position, number

    def of(self, tensors: Sequence[torch.Tensor]) -> Any:
        tensor = tensors[self.position]
        return tensor if self.number is None else self.number(tensor.item())


class _Untold(Exception):
    """An argument is nothing of the kind."""


def _told(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The value, with the tensors in it noted."""
    if _depends_on_data(value):
        tensors.append(value.tensor)
        return _Given(len(tensors) - 1, value.__class__)
    if isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex():
        tensors.append(value)
        return _Given(len(tensors) - 1, None)
    if type(value) in (list, tuple, torch.Size):
        told = [_told(item, tensors) for item in value]
        return told if type(value) is list else tuple(told)
    if type(value) is dict:
        return {key: _told(item, tensors) for key, item in value.items()}
    if type(value) in _PLAIN or isinstance(value, (np.generic, np.dtype)):
        return value
    raise _Untold


def _filled(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_filled(item, tensors) for item in value)
    if type(value) is dict:
        return {key: _filled(item, tensors) for key, item in value.items()}
    return value.of(tensors) if type(value) is _Given else value


def _leaves(found: Any) -> list[Any] | None:
    """The arrays and numbers that a function gives: one, or several; None if it gives something else."""
    leaves = list(found) if type(found) in (list, tuple) else [found]
    are_known = all(
        leaf.dtype.kind in "biuf" if type(leaf) is np.ndarray else type(leaf) in _NUMBERS for leaf in leaves
    )
    return leaves if leaves and are_known else None


def _forms(leaves: Sequence[Any]) -> list[tuple[tuple[int, ...], str]]:
    return [(np.shape(leaf), np.asarray(leaf).dtype.str) for leaf in leaves]


def _dtype(name: str) -> torch.dtype:
    return torch.from_numpy(np.empty(0, name)).dtype


def _kernel(call: str, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    file, name, args, kwargs, expected = pickle.loads(base64.b64decode(call))
    function = getattr(importlib.import_module(file), name)
    leaves = _leaves(function(*_filled(args, tensors), **_filled(kwargs, tensors))) or []
    if (forms := _forms(leaves)) != expected:
        raise RuntimeError(_OTHER.format(name, forms, expected))
    return [torch.from_numpy(np.array(leaf)) for leaf in leaves]


_LIBRARY = torch.library.Library("bridge", "FRAGMENT")
for _name, _tags in ("call_of_python", (torch.Tag.nondeterministic_seeded,)), ("computed_by_python", ()):
    _operator = _LIBRARY.define(f"{_name}(str call, Tensor[] tensors) -> Tensor[]", tags=_tags)
    _LIBRARY.impl(_operator, _kernel, "CompositeExplicitAutograd")
CALL: Any = torch.ops.bridge.call_of_python.default
_COMPUTED: Any = torch.ops.bridge.computed_by_python.default


@functools.cache
def _register_shapes() -> None:
    def shapes(call: str, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.empty(shape, dtype=_dtype(name)) for shape, name in pickle.loads(base64.b64decode(call))[-1]]

    for operator in (CALL, _COMPUTED):
        torch.library.register_fake(operator.name(), shapes)


def replacements(by_itself: Callable[[], Any]) -> list[Replacement]:
    """What stands for these functions, and for those of PyTorch's that take their arrays.

    Args:
        by_itself: makes a context in which Python draws by its own functions, and has drawn nothing after it. It gives
            what tells whether it has drawn by then.
    """
    stand_ins = {id(function): _stand_in(function, by_itself) for function in _functions}
    found = [Replacement(holder, name, stand_ins[id(value)]) for holder, name, value in _places] if stand_ins else []
    return [*found, *(_OF_PYTORCHS if _is_given else ())]


def _stand_in(function: FunctionType, by_itself: Callable[[], Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        tensors: list[torch.Tensor] = []
        if _thread.tries:
            return function(*args, **kwargs)
        try:
            told = _told(args, tensors), _told(kwargs, tensors)
        except _Untold:
            return function(*args, **kwargs)
        before = pickle.dumps(told)
        own = pickle.loads(before)  # the function may write to its arguments
        with by_itself() as has_drawn, no_modes():
            ones = [torch.ones(tensor.shape, dtype=tensor.dtype) for tensor in tensors]
            _thread.tries = True
            try:
                found = function(*_filled(own[0], ones), **_filled(own[1], ones))
            finally:
                _thread.tries = False
            is_constant = not tensors and not has_drawn()
        if is_constant or _leaves(found) is None or pickle.dumps(own) != before:
            return function(*args, **kwargs)
        return _standing_for(found, function.__module__, function.__name__, *told, tensors)

    return called


def drawn_at_once(found: Any, name: str, args: Any, kwargs: Any) -> Any:
    """What stands for arrays or numbers that a function of Python's or NumPy's draws; None if it gives something else.

    Args:
        found: what it has drawn in a trial.
        name: the function, as "numpy.random.permutation".
        args, kwargs: its arguments, plain ones.
    """
    file, _, function = name.rpartition(".")
    return None if _leaves(found) is None else _standing_for(found, file, function, args, kwargs, [])


def _standing_for(found: Any, file: str, name: str, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
    """What stands for what a call of a file's function gives, where it gives something like this."""
    _register_shapes()
    leaves = _leaves(found) or []
    call = base64.b64encode(pickle.dumps((file, name, args, kwargs, _forms(leaves)))).decode()
    given = [_given(name, *each) for each in zip(CALL(call, tensors), leaves, strict=True)]
    return type(found)(given) if type(found) in (list, tuple) else given[0]


def computed(function: Callable[..., Any], *args: Any) -> Any:
    """What stands for a number that a function of Python's or NumPy's computes from such that depend on data.

    Raises:
        _Untold: an argument is neither such a number nor a plain value.
    """
    _register_shapes()
    tensors: list[torch.Tensor] = []
    told = _told(args, tensors)
    file = function.__module__ if hasattr(function, "__module__") else "numpy"  # a ufunc has none
    call = pickle.dumps((file, function.__name__, told, {}, [((), "<f8")]))
    [tensor] = _COMPUTED(base64.b64encode(call).decode(), tensors)
    return tensor.item()


def _given(name: str, tensor: torch.Tensor, like: Any) -> Any:
    if type(like) is np.ndarray:
        note_given()
        return _Array(name, tensor, like)
    number = tensor.item()  # a float that depends on data, or an integer, which counts as a size
    return int(number) if isinstance(like, (int, np.int64)) and not isinstance(like, bool) else number


class _Array:
    """Stands for an array.

    Args:
        function: what has given it.
        tensor: has its data.
        like: an array of that shape and dtype.
    """

    def __init__(self, function: str, tensor: torch.Tensor, like: np.ndarray) -> None:
        self.tensor, self._function, self._like = tensor, function, like
        self.shape, self.dtype, self.ndim, self.size = like.shape, like.dtype, like.ndim, like.size

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray

    def __len__(self) -> int:
        return len(self._like)

    def __getitem__(self, index: Any) -> Any:
        items = index if type(index) is tuple else (index,)
        if not all(item is None or item is Ellipsis or type(item) in (int, slice) for item in items):
            raise self._refusal("__getitem__")
        return self._made(self.tensor[index], self._like[index])

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def item(self) -> Any:
        """Its number, if it has one."""
        return self._made(self.tensor.reshape(()), self._like.reshape(()).item())

    def astype(self, dtype: Any, *_: Any, **__: Any) -> Any:
        """The same in another dtype."""
        like = self._like.astype(dtype)
        return self._made(self.tensor.to(_dtype(like.dtype.str)), like)

    def copy(self, *_: Any) -> Any:
        """A copy."""
        return self._made(self.tensor.clone(), self._like)

    def reshape(self, *shape: Any, **_: Any) -> Any:
        """The same in another shape."""
        like = self._like.reshape(*shape)
        return self._made(self.tensor.reshape(like.shape), like)

    def _made(self, tensor: torch.Tensor, like: Any) -> Any:
        if type(like) is not np.ndarray and type(like) not in _NUMBERS:
            raise self._refusal(f"a number of {type(like).__name__}")
        return _given(self._function, tensor, like)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("__") else self._refusal(name)

    def _refusal(self, name: str) -> Refusal:
        note_function(sys._getframe(2))
        return Refusal(_USED.format(self._function, name))


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(array: _Array, *_: Any, **__: Any) -> Any:
        raise array._refusal(name)

    return refuse


_OF_ALL = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__str__", "__repr__", "__format__"}
for _name in dir(np.ndarray):
    is_operator = _name.startswith("__") and callable(getattr(np.ndarray, _name))
    if is_operator and (_name in _OF_ALL or _name not in dir(_Array)):
        setattr(_Array, _name, _refusing(_name))


def as_index(index: Any) -> Any:
    """An index with tensors in the place of such arrays; the same object if there are none."""
    if type(index) is tuple and any(type(item) is _Array for item in index):
        return tuple(map(as_index, index))
    return index.tensor if type(index) is _Array else index


# The functions of PyTorch's that take arrays, and whether they copy them.
_TAKING = {"tensor": True, "as_tensor": False, "asarray": False, "from_numpy": False}


def _taking(own: Callable[..., Any], is_copy: bool) -> Callable[..., Any]:
    def take(data: Any, *args: Any, **kwargs: Any) -> Any:
        found = _taken(data, is_copy, **dict(zip(("dtype", "device"), args, strict=False)) | kwargs)
        return own(data, *args, **kwargs) if found is None else found

    return take


def _taking_alike(own: Callable[..., Any]) -> Callable[..., Any]:
    """A method that makes a tensor like its own. Of one that is called `new`, a number is a size."""

    def take(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        given: dict[str, Any] = {"dtype": tensor.dtype, "device": tensor.device}
        given |= {name: value for name, value in kwargs.items() if value is not None}
        is_data = _is_legacy_data(args) or (own.__name__ == "new_tensor" and len(args) == 1)
        found = _taken(args[0], True, **given) if is_data else None
        return own(tensor, *args, **kwargs) if found is None else found

    return take


_own_new = torch.Tensor.__new__


def _new(kind: type, *args: Any, **kwargs: Any) -> Any:
    """torch.Tensor of an array or a list."""
    is_data = kind is torch.Tensor and _is_legacy_data(args)
    found = _taken(args[0], True, torch.get_default_dtype(), **kwargs) if is_data else None
    return _own_new(kind, *args, **kwargs) if found is None else found  # type: ignore[call-arg]


def _is_legacy_data(args: tuple[Any, ...]) -> bool:
    """Whether these arguments are the numbers of a tensor, and not its size."""
    return len(args) == 1 and type(args[0]) in (_Array, list, tuple)


class _LegacyType(type):
    """Stands for a type of PyTorch's as torch.FloatTensor is one, which has a dtype."""

    own: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        found = _taken(args[0], True, cls.own.dtype, **kwargs) if _is_legacy_data(args) else None
        return cls.own(*args, **kwargs) if found is None else found

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.own)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.own, name)


_OF_PYTORCHS = [
    *(Replacement(torch, name, _taking(getattr(torch, name), is_copy)) for name, is_copy in _TAKING.items()),
    *(Replacement(torch.Tensor, name, _taking_alike(getattr(torch.Tensor, name))) for name in ("new_tensor", "new")),
    Replacement(torch.Tensor, "__new__", _new),
    *(
        Replacement(torch, name, _LegacyType(f"torch.{name}", (), {"own": own}))
        for name, own in vars(torch).items()
        if type(own) is type(torch.FloatTensor)
    ),
]
"""What stands for what takes such arrays."""


def _taken(
    data: Any,
    is_copy: bool,
    dtype: torch.dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **_: Any,
) -> torch.Tensor | None:
    """The tensor that PyTorch makes of data; None if there are neither such arrays nor such numbers in it."""
    found = _tensor_of(data, dtype)
    if found is None:
        return None
    found = found.to(device=device, dtype=dtype, copy=is_copy)
    return found.requires_grad_() if requires_grad else found


def _tensor_of(data: Any, dtype: torch.dtype | None) -> torch.Tensor | None:
    """The tensor of such an array or number, or of lists with some in them; None of anything else."""
    if type(data) is _Array:
        return data.tensor
    if type(data) is np.ndarray and data.dtype == object:  # of such numbers, for which NumPy has no dtype
        return _tensor_of(data.tolist(), torch.float64)
    items = [*_items(data)]
    is_one = any(type(item) is _Array or _depends_on_data(item) for item in items)
    if not is_one or not all(isinstance(item, (int, float, np.ndarray)) for item in items):
        return None
    found = _stacked(data)
    return found if dtype else found.to(functools.reduce(torch.promote_types, map(_dtype_in_list, items)))


def _items(data: Any) -> Iterator[Any]:
    if type(data) not in (list, tuple):
        yield data
        return
    for item in data:
        yield from _items(item)


def _stacked(data: Any) -> torch.Tensor:
    """The numbers of lists, as exact as they are there."""
    if type(data) in (list, tuple):
        rows = [_stacked(item) for item in data]
        kind = functools.reduce(torch.promote_types, (row.dtype for row in rows))
        return torch.stack([row.to(kind) for row in rows])
    if type(data) is _Array or _depends_on_data(data):
        return data.tensor  # type: ignore[no-any-return]
    return torch.tensor(data, dtype=torch.float64 if isinstance(data, float) else None)


def _dtype_in_list(item: Any) -> torch.dtype:
    """What PyTorch takes for its dtype."""
    if isinstance(item, np.ndarray):
        return _dtype(item.dtype.str)
    return torch.get_default_dtype() if isinstance(item, float) else torch.int64


def _depends_on_data(value: Any) -> bool:
    return bool(getattr(type(value), "depends_on_data", False))
