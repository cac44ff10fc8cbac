"""What a function or Cell sees inside a fused program: twins, whose Parameters and other tensors are PyTorch's."""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.op import devices
from bridge.primitive import direct
from bridge.primitive.kernel import one_at_a_time
from bridge.programs import tree
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
        self._variables: list[_Variable] = []
        self._lent: dict[int, Any] = {}
        self._is_made = False
        self._calls: Any = None

    def of(self, value: Any) -> Any:
        """What stands for a value in the program."""
        if isinstance(value, (ms.Tensor, ms.nn.Cell, Program)) or (isinstance(value, FunctionType) and _is_own(value)):
            if id(value) not in self._known or self._has_moved(value):
                self._make(value)
            return self._known[id(value)][1]
        if isinstance(value, HasTwin):
            return value.twin(self.of)
        if isinstance(value, MethodType):
            return MethodType(value.__func__, self.of(value.__self__))
        if type(value) in (list, tuple):
            return self._lend(value, value, [self.of(item) for item in value], type(value))
        if type(value) in (dict, OrderedDict):
            items = [self.of(item) for item in value.values()]
            return self._lend(value, value.values(), items, lambda twins: type(value)(zip(value, twins, strict=True)))
        return value

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Variables around functions are what they are now, and what the program sets them to."""
        self._is_made = True
        self._lent.clear()
        for variable in self._variables:
            variable.follow(self)
        try:
            yield
        finally:
            for variable in self._variables:
                variable.give_back()
            self._refuse_kept()

    def _lend(self, value: Any, items: Iterable[Any], twins: list[Any], make: Callable[[list[Any]], Any]) -> Any:
        """A container of twins; the container itself if nothing in it has one, so that writes reach it."""
        if any(item is not twin for item, twin in zip(items, twins, strict=True)):
            return make(twins)
        if type(value) is not tuple and not any(isinstance(item, torch.Tensor) for item in items):
            self._lent[id(value)] = value
        return value

    def _refuse_kept(self) -> None:
        """Raise an error if the program has put one of its tensors into a container, and take it out."""
        lent, self._lent = self._lent, {}
        for value in lent.values():
            items = value if isinstance(value, list) else value.values()
            if not any(isinstance(item, torch.Tensor) for item in items):
                continue
            if isinstance(value, list):
                value[:] = [item for item in value if not isinstance(item, torch.Tensor)]
            else:
                for key in [key for key, item in value.items() if isinstance(item, torch.Tensor)]:
                    del value[key]
            raise RuntimeError(
                f"bridge.fuse: the program puts a tensor into a {type(value).__name__} that is there after the call, "
                "which a fused program cannot keep: give it as a result"
            )

    def _make(self, value: Any) -> None:
        """Make the twin of a value, and of what it sees."""

        def known(twin: Any) -> Any:
            self._known[id(value)] = value, twin
            return twin

        if self._is_made and isinstance(value, (ms.Parameter, Program)):
            name = value.name
            raise RuntimeError(
                f"bridge.fuse: {name} was not there when the program was made: make it again after a change"
            )
        if isinstance(value, ms.Parameter):
            self._name(value.name, known(tensor_of(value)))
        elif isinstance(value, ms.Tensor):
            known(self._on_memory_of(value))
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
                self._variables.append(_Variable(own, cell))
                self._variables[-1].follow(self)  # it may be the function
            twin.__defaults__, twin.__kwdefaults__ = self.of(value.__defaults__), self.of(value.__kwdefaults__)
            self.of([value.__globals__.get(name) for name in _names(value.__code__)])

    def _has_moved(self, value: Any) -> bool:
        """Whether a tensor that is no Parameter has other memory than its twin."""
        return type(value) is ms.Tensor and value.size > 0 and value.data_ptr() != self._known[id(value)][1].data_ptr()

    def _on_memory_of(self, tensor: ms.Tensor) -> torch.Tensor:
        """PyTorch's tensor on a tensor's memory, which it keeps."""
        if self._calls is None:
            self._calls = direct.module("bridge.fuse", tree.results, is_torch_code=True)
        found: list[torch.Tensor] = []
        with one_at_a_time:
            self._calls(lambda view: found.append(view.detach()), [tensor], devices.gpu(), False)
        return found[0]

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


class _Variable:
    """A variable around a function, and that of the function's twin."""

    def __init__(self, own: CellType, twin: CellType) -> None:
        self._own, self._twin = own, twin
        self._given: Any = None

    def follow(self, twins: Twins) -> None:
        """Have the twin's be what the own one is, if that has been set."""
        with contextlib.suppress(ValueError):
            self._given = twins.of(self._own.cell_contents)
            self._twin.cell_contents = self._given

    def give_back(self) -> None:
        """Have the own one be what the program has set the twin's to."""
        with contextlib.suppress(ValueError):
            found = self._twin.cell_contents
            if found is self._given:
                return
            self._twin.cell_contents = self._given
            if isinstance(found, torch.Tensor):
                raise RuntimeError(
                    "bridge.fuse: the program sets a variable around a function to a tensor, which a fused program "
                    "cannot keep: give it as a result"
                )
            self._own.cell_contents = found


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
            if isinstance(of_class, property) and isinstance(of_class.fget, FunctionType) and _is_own(of_class.fget):
                return of_class.fget(self)
            return twins.of(getattr(cell, name))

        def __setattr__(self, name: str, value: Any) -> None:
            twins, cell = self._twin
            buffer = vars(cell).get("_params", {}).get(name)
            if isinstance(value, torch.Tensor) and buffer is not None and not buffer.requires_grad:
                twins.of(buffer).copy_(value.detach())  # as the Cell's own assignment
                return
            if isinstance(value, torch.Tensor):
                raise AttributeError(
                    f"bridge.fuse: {type(cell).__name__}.{name} is assigned a tensor, which a Cell cannot keep"
                )
            setattr(cell, name, value)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.construct(*args, **kwargs)

    return Twin
