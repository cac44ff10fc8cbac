"""What a function or Cell sees inside a fused program: twins, whose Parameters and other tensors are PyTorch's."""

from __future__ import annotations

import functools
import pathlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.op import devices
from bridge.primitive.tensors import torch_view
from bridge.programs.program import Program
from bridge.programs.state import tensor_of

_FRAMEWORKS = tuple(
    f"{pathlib.Path(file).parent}/" for file in (ms.__file__, torch.__file__, str(pathlib.Path(__file__).parent))
)


class HasTwin:
    """An object that is no Cell and holds some."""

    def twin(self, of: Callable[[Any], Any]) -> Any:
        """What stands for it. `of` gives what stands for a value that it holds."""
        raise NotImplementedError


class Twins:
    """Makes the twin of each thing once.

    Attributes:
        tensors: PyTorch's tensors of all Parameters that were met, by the Parameters' names.
        modules: the PyTorch modules that were met.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.modules: list[torch.nn.Module] = []
        self._known: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any) -> Any:
        """What stands for a value in the program."""
        if isinstance(value, (ms.Tensor, ms.nn.Cell, Program)) or (isinstance(value, FunctionType) and _is_own(value)):
            if id(value) not in self._known:
                self._make(value)
            return self._known[id(value)][1]
        if isinstance(value, HasTwin):
            return value.twin(self.of)
        if isinstance(value, MethodType):
            return MethodType(value.__func__, self.of(value.__self__))
        if type(value) in (list, tuple):
            return type(value)(map(self.of, value))
        if type(value) in (dict, OrderedDict):
            return type(value)((key, self.of(item)) for key, item in value.items())
        return value

    def _make(self, value: Any) -> None:
        """Make the twin of a value, and of what it sees."""

        def known(twin: Any) -> Any:
            self._known[id(value)] = value, twin
            return twin

        if isinstance(value, ms.Parameter):
            self._name(value.name, known(tensor_of(value)))
        elif isinstance(value, ms.Tensor):
            _mindspore.wait()
            known(torch_view(value).clone().to(devices.torch_name(devices.target())))
        elif isinstance(value, Program):
            known(value.on_torch)
            value.state.follow_parts()
            self.modules += value.state.modules
            self.of(list(value.weights))
        elif isinstance(value, ms.nn.Cell):
            _refuse_hooks(value)
            known(_twin_of_cell(self, value))
            self.of(list(value.get_parameters()))
            self.of([item for _, cell in value.cells_and_names() for item in vars(cell).values()])
        else:
            twin = known(_empty_twin_of_function(self, value))
            for cell, own in zip(twin.__closure__ or (), value.__closure__ or (), strict=True):
                cell.cell_contents = self.of(own.cell_contents)  # which may be the function
            twin.__defaults__, twin.__kwdefaults__ = self.of(value.__defaults__), self.of(value.__kwdefaults__)
            self.of([value.__globals__.get(name) for name in _names(value.__code__)])

    def _name(self, name: str, tensor: torch.Tensor) -> None:
        while name in self.tensors:
            name += "_"
        self.tensors[name] = tensor


def _is_own(function: FunctionType) -> bool:
    """Whether a function is the user's."""
    return not function.__code__.co_filename.startswith(_FRAMEWORKS)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _names(value)


def _refuse_hooks(cell: ms.nn.Cell) -> None:
    if _mindspore.has_hooks(cell):
        raise RuntimeError(f"bridge.fuse: {type(cell).__name__} has hooks, which a fused program does not run")


class _Globals(dict[str, Any]):
    """The twins of a function's globals."""

    def __init__(self, twins: Twins, own: dict[str, Any]) -> None:
        super().__init__(__builtins__=own["__builtins__"], __name__=own.get("__name__"))
        self._twins, self._own = twins, own

    def __getitem__(self, name: str) -> Any:
        return self._twins.of(self._own[name])


def _empty_twin_of_function(twins: Twins, function: FunctionType) -> FunctionType:
    closure = tuple(CellType() for _ in function.__closure__ or ())
    return FunctionType(function.__code__, _Globals(twins, function.__globals__), function.__name__, None, closure)


def _twin_of_cell(twins: Twins, cell: ms.nn.Cell) -> Any:
    kind = _twin_class(type(cell))  # type: ignore[arg-type]
    twin = kind.__new__(kind)
    object.__setattr__(twin, "_twin", (twins, cell))
    return twin


@functools.cache
def _twin_class(kind: Any) -> Any:
    """A Cell's class for its twin: what it has is the twin of what the Cell has now."""

    class Twin(kind):  # type: ignore[misc, valid-type]  # any Cell's
        def __getattribute__(self, name: str) -> Any:
            if name in ("_twin", "__class__"):
                return object.__getattribute__(self, name)
            twins, cell = object.__getattribute__(self, "_twin")
            of_class = getattr(kind, name, None)
            if isinstance(of_class, property) and of_class.fget is not None:
                return of_class.fget(self)
            return twins.of(getattr(cell, name))

        def __setattr__(self, name: str, value: Any) -> None:
            if isinstance(value, torch.Tensor):
                raise AttributeError(
                    f"bridge.fuse: {type(self._twin[1]).__name__}.{name} is assigned a tensor, which a Cell cannot keep"
                )
            setattr(self._twin[1], name, value)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.construct(*args, **kwargs)

    return Twin
