"""What a function or Cell sees inside a fused program: twins, whose Parameters and other tensors are PyTorch's."""

from __future__ import annotations

import contextlib
import copy
import functools
import pathlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.op import devices
from bridge.primitive import direct
from bridge.primitive.kernel import one_at_a_time
from bridge.programs import mindspores, tree
from bridge.programs.cell import ModuleCell
from bridge.programs.kept_elsewhere import held_by
from bridge.programs.own_gradient import call_with_bprop
from bridge.programs.program import Program
from bridge.programs.program_cell import ProgramCell
from bridge.programs.state import tensor_of
from bridge.programs.twin_object import (
    ObjectTwin,
    found_by,
    is_object,
    is_users_module,
    leads_to,
    twin_of_object,
)
from bridge.programs.written_down import is_users_function

_FRAMEWORKS = tuple(
    f"{pathlib.Path(file).parent}/" for file in (ms.__file__, torch.__file__, str(pathlib.Path(__file__).parent))
)
# Of these nothing stands for another thing.
_AS_THEY_ARE = frozenset((int, float, bool, complex, str, bytes, type(None), torch.Tensor, BuiltinFunctionType))


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
        cells: the Cells that were met, with those inside.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.modules: list[torch.nn.Module] = []
        self.cells: list[ms.nn.Cell] = []
        self._known: dict[int, tuple[Any, Any]] = {}
        self._owners: dict[int, Any] = {}
        self._names: set[str] = set()
        self._objects: list[Any] = []
        self._plain: dict[int, Any] = {}
        self._functions: list[FunctionType] = []
        self._variables: list[_Variable] = []
        self._globals: dict[int, _Globals] = {}
        self._lent: dict[int, _Lent] = {}
        self._lent_twins: dict[int, _Lent] = {}
        self._is_made = self._runs = False
        self._unseen: list[Any] = []
        self._looks = False
        self._calls: Any = None
        mindspores.replace_functions()

    def of(self, value: Any) -> Any:
        """What stands for a value in the program."""
        kind = type(value)
        if kind in _AS_THEY_ARE or (kind is ModuleType and not is_users_module(value)):
            return mindspores.twin_of_module(value) if kind is ModuleType else value
        if mindspores.is_dtype(value):
            return mindspores.twin_of_dtype(value)
        if (stand_in := mindspores.stand_in(value)) is not value:
            return stand_in
        known = self._known.get(id(value))
        if known is not None and (kind is not ms.Tensor or not self._has_moved(value)):
            return known[1]
        if isinstance(value, (_CellTwin, ObjectTwin)):
            return value
        has_state = isinstance(value, (ms.Tensor, ms.nn.Cell, Program, torch.nn.Module))
        if has_state or (isinstance(value, FunctionType) and _is_own(value)):
            self._make(value)
            return self._known[id(value)][1]
        if isinstance(value, HasTwin):
            return value.twin(self.of)
        if isinstance(value, MethodType):
            function = self.of(value.__func__) if is_users_function(value.__func__) else value.__func__
            return MethodType(function, self.of(value.__self__))
        if kind is functools.partial:
            parts = (value.func, value.args, value.keywords)
            function, args, keywords = twins = self.of(parts)
            return value if twins is parts else functools.partial(function, *args, **keywords)
        if isinstance(value, (list, tuple, dict, set, frozenset)):
            return self._of_container(value)
        return self._of_object(value) if is_object(value) else value

    def own_of(self, value: Any) -> Any:
        """What a value of the program is outside of it."""
        if isinstance(value, (_CellTwin, ObjectTwin)):
            return object.__getattribute__(value, "_bridge_twin")[1]
        if id(value) in self._lent_twins:
            return self._lent_twins[id(value)].own
        if isinstance(value, MethodType):
            return MethodType(self.own_of(value.__func__), self.own_of(value.__self__))
        if type(value) in (list, tuple, dict, OrderedDict):
            items = [*(value.values() if isinstance(value, dict) else value)]
            owns = [self.own_of(item) for item in items]
            is_same = all(own is item for own, item in zip(owns, items, strict=True))
            return value if is_same else _filled(value, owns)
        return self._owners.get(id(value), value)

    def kept(self, value: Any, what: str) -> Any:
        """What a value of the program is after the call, where the program leaves it.

        Args:
            what: what it does with the value, for errors.

        Raises:
            AttributeError: it is a tensor of the program's, or has one.
        """
        own = self.own_of(value)
        if _has_tensor(own):
            raise AttributeError(
                f"bridge.fuse: {what} a tensor, which a fused program cannot keep after the call: give it as a result"
            )
        return own

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Variables around functions are what they are now, and what the program sets them to."""
        self._is_made = self._runs = True
        self._lent, self._lent_twins = {}, {}
        self._plain.clear()
        for variable in self._variables:
            variable.follow(self)
        for function in self._functions:
            self._follow_defaults(function)
        try:
            yield
        finally:
            self._runs = False
            for variable in self._variables:
                variable.give_back(self)
            for names in self._globals.values():
                names.give_back()
            self._give_back_containers()

    def twins_of_globals(self, function: FunctionType) -> _Globals:
        """The twins of a function's globals, which all functions of its file share."""
        own = function.__globals__
        if id(own) not in self._globals:
            self._globals[id(own)] = _Globals(self, own)
        return self._globals[id(own)]

    def _of_container(self, value: Any) -> Any:
        """A container of twins; the container itself if nothing in it has one, so that writes reach it."""
        if self._runs and id(value) in self._lent:
            return self._lent[id(value)].twin
        items = [*(held_by(value).values() if isinstance(value, dict) else value)]
        twins = [self.of(item) for item in items]
        is_same = all(item is twin for item, twin in zip(items, twins, strict=True))
        twin = value if is_same else _filled(value, twins)
        if self._runs and isinstance(value, (list, dict)) and not (is_same and _has_tensor(items)):
            self._lent[id(value)] = self._lent_twins[id(twin)] = _Lent(value, twin)
        return twin

    def _give_back_containers(self) -> None:
        """Write to containers what the program has written to their twins. Raise an error if it is one of its tensors,
        and leave that out."""
        refused = None
        for one in self._lent.values():
            if one.give_back(self):
                refused = type(one.own).__name__
        self._lent, self._lent_twins = {}, {}
        if refused is not None:
            raise RuntimeError(
                f"bridge.fuse: the program puts a tensor into a {refused} that is there after the call, "
                "which a fused program cannot keep: give it as a result"
            )

    def _of_object(self, value: Any) -> Any:
        """The twin of an object; the object itself if nothing in it has one, which each call looks at once."""
        if id(value) not in self._known:
            inside: dict[int, Any] = {}
            if id(value) in self._plain or not self._may_differ(value, inside):
                self._plain |= inside
                return value
            self._make(value)
        return self._known[id(value)][1]

    def _may_differ(self, value: Any, inside: dict[int, Any]) -> bool:
        """Whether a value has a twin that is not itself. Makes none.

        Args:
            inside: takes what it leads to, by ids: a chain of these may be longer than Python's stack.
        """
        left = [value]
        while left:
            one = left.pop()
            if type(one) in _AS_THEY_ARE or id(one) in inside or id(one) in self._plain:
                continue
            if mindspores.stand_in(one) is not one or id(one) in self._known:
                return True
            if isinstance(one, (ms.Tensor, ms.nn.Cell, Program, HasTwin, torch.nn.Module)):
                return True
            if isinstance(one, FunctionType):
                if _is_own(one):
                    return True
                continue
            inside[id(one)] = one
            if isinstance(one, MethodType):
                if is_users_function(one.__func__):
                    return True
                left.append(one.__self__)
            elif type(one) is functools.partial:
                left += one.func, one.args, one.keywords
            elif isinstance(one, (list, tuple, dict, set, frozenset)):
                left += held_by(one).values() if isinstance(one, dict) else one
            elif is_object(one):
                found = leads_to(one)
                if found is None:
                    return True
                left += found
        return False

    def _see(self, names: Iterable[str]) -> None:
        """Code with these names runs in the program: make the twins of what it may find in objects."""
        new = set(names) - self._names
        self._names |= new
        if new and not self._is_made:
            for value in [*self._objects]:
                self._look_into(value)

    def _look_into(self, value: Any) -> None:
        for found in [*found_by(value, self._names)]:
            self.of(found)

    def _follow_defaults(self, function: FunctionType) -> None:
        twin = self._known[id(function)][1]
        twin.__defaults__, twin.__kwdefaults__ = self.of(function.__defaults__), self.of(function.__kwdefaults__)

    def _make(self, value: Any) -> None:
        """Make the twin of a value, and of what it sees."""

        def known(twin: Any) -> Any:
            if id(value) in self._known:
                self._owners.pop(id(self._known[id(value)][1]))
            self._known[id(value)] = value, twin
            self._owners[id(twin)] = value
            return twin

        if isinstance(value, torch.nn.Module) and (self._is_part(value) or (self._is_made and not _has_state(value))):
            known(value)
            return
        if self._is_made and isinstance(value, (ms.Parameter, Program, torch.nn.Module)):
            name = type(value).__name__ if isinstance(value, torch.nn.Module) else value.name
            raise RuntimeError(
                f"bridge.fuse: {name} was not there when the program was made, or no name in the function's code leads "
                "to it: make the program again after a change, and write the attribute's name"
            )
        if isinstance(value, ms.Parameter):
            self._name(value.name, known(tensor_of(value)))
        elif isinstance(value, ms.Tensor):
            known(self._on_memory_of(value))
        elif isinstance(value, Program):
            known(value.on_torch)
            self._add_state(value)
        elif isinstance(value, torch.nn.Module):  # which runs as it is, and has a Cell's Parameters
            known(value)
            self._add_state(ModuleCell.of(value).program)
        elif isinstance(value, ms.nn.Cell):
            _refuse_wrapped(value)
            known(_twin_of_cell(self, value))
            self.cells += [part for _, part in value.cells_and_names()]
            self.of(list(value.get_parameters()))
            self.of([item for _, part in value.cells_and_names() for item in vars(part).values()])
            self._objects.append(value)
            self._see(["construct"])
            self._look_into(value)
        else:
            is_function = isinstance(value, FunctionType)
            known(_empty_twin_of_function(self, value) if is_function else twin_of_object(self, value))
            self._unseen.append(value)
            self._look_around()

    def _is_part(self, module: torch.nn.Module) -> bool:
        """Whether a module is a part of one that was met."""
        return any(part is module for met in self.modules for part in met.modules())

    def _add_state(self, program: Program) -> None:
        program.state.follow_parts()
        self.modules += (module for module in program.state.modules if all(one is not module for one in self.modules))
        self.of(list(program.weights))

    def _look_around(self) -> None:
        """Make the twins of what the functions and objects made since lead to: one after the other, because a chain of
        them may be longer than Python's stack."""
        if self._looks:
            return
        self._looks = True
        try:
            while self._unseen:
                value = self._unseen.pop()
                if isinstance(value, FunctionType):
                    self._follow_function(value)
                    continue
                self._objects.append(value)
                if not self._is_made:
                    self._look_into(value)
        finally:
            self._unseen.clear()
            self._looks = False

    def _follow_function(self, function: FunctionType) -> None:
        twin = self._known[id(function)][1]
        self._functions.append(function)
        names = [*_names(function.__code__)]
        self._see(names)
        for name, cell, own in zip(
            function.__code__.co_freevars, twin.__closure__ or (), function.__closure__ or (), strict=True
        ):
            if name == "__class__":  # for super()
                cell.cell_contents = own.cell_contents
                continue
            self._variables.append(_Variable(own, cell))
            self._variables[-1].follow(self)  # it may be the function
        self._follow_defaults(function)
        if not self._is_made:
            self.of([function.__globals__.get(name) for name in names])

    def _has_moved(self, value: Any) -> bool:
        """Whether a tensor that is no Parameter has other memory than its twin."""
        return value.size > 0 and value.data_ptr() != self._known[id(value)][1].data_ptr()

    def _on_memory_of(self, tensor: ms.Tensor) -> torch.Tensor:
        """PyTorch's tensor on a tensor's memory, which it keeps."""
        if self._calls is None:
            self._calls = direct.module("bridge.fuse", tree.results_with_data, is_torch_code=True)
        found: list[torch.Tensor] = []
        with one_at_a_time:
            self._calls(found.append, [tensor], devices.gpu(), False)
        if found[0].requires_grad:
            raise RuntimeError(
                f"bridge.fuse: the program finds a tensor of shape {tuple(tensor.shape)} in a variable or an attribute "
                "that MindSpore differentiates, and would have no gradient for it: give it as an argument"
            )
        return found[0].detach()

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


def _refuse_wrapped(cell: ms.nn.Cell) -> None:
    """Raise an error for a Cell whose call does more than its `construct` and `bprop`."""
    name = type(cell).__name__
    if _mindspore.has_hooks(cell):
        raise RuntimeError(f"bridge.fuse: {name} has hooks, which a fused program does not run")
    if getattr(cell, "_recompute_cell", None) is not None:
        raise RuntimeError(
            f"bridge.fuse: {name} has recompute(), which a fused program does not follow: ms.value_and_grad does, and "
            "so does torch.utils.checkpoint inside a module"
        )
    if _is_own_method(type(cell).__call__):
        raise RuntimeError(f"bridge.fuse: {name} has a __call__ of its own, which a fused program does not run")
    is_program = isinstance(cell, ProgramCell) and type(cell).construct is ProgramCell.construct  # which casts itself
    if _mindspore.is_cast(cell) and not is_program:
        raise RuntimeError(
            f"bridge.fuse: {name} has to_float or mindspore.amp, which a fused program does not follow: call it under "
            "torch.autocast, or cast inside, with aten.to"
        )


def _is_own_method(method: Any) -> bool:
    return isinstance(method, FunctionType) and _is_own(method)


def _has_state(module: torch.nn.Module) -> bool:
    return any(part._parameters or part._buffers for part in module.modules())


def _has_tensor(value: Any) -> bool:
    """Whether a value is one of PyTorch's tensors, or a container that has one."""
    if type(value) in (list, tuple, dict, OrderedDict):
        return any(map(_has_tensor, value.values() if isinstance(value, dict) else value))
    return isinstance(value, torch.Tensor)


def _filled(value: Any, items: list[Any]) -> Any:
    """A container like another one, with other items."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind(items)
    if isinstance(value, tuple):
        return kind._make(items) if hasattr(kind, "_make") else tuple(items)
    filled = copy.copy(value)
    if isinstance(value, dict):
        dict.update(filled, zip(held_by(value), items, strict=True))
    elif isinstance(value, list):
        list.__setitem__(filled, slice(None), items)
    else:
        return type(value)(items)
    return filled


class _Lent:
    """A list or dictionary that the program has got.

    Args:
        own: the container outside.
        twin: what the program has: that, or a container of twins.
    """

    def __init__(self, own: Any, twin: Any) -> None:
        self.own, self.twin = own, twin
        self._before = own if twin is own else copy.copy(twin)

    def give_back(self, twins: Twins) -> bool:
        """Have the own one be what the program has made of its twin, without tensors. Whether there were any."""
        if self.twin is not self.own and self._is_as_before():
            return False
        if isinstance(self.own, list):
            found = [twins.own_of(item) for item in self.twin]
            kept = [item for item in found if not _has_tensor(item)]
            if self.twin is not self.own or len(kept) < len(found):
                self.own[:] = kept
            return len(kept) < len(found)
        items = {key: twins.own_of(item) for key, item in held_by(self.twin).items()}
        others = {key: item for key, item in items.items() if not _has_tensor(item)}
        if self.twin is not self.own or len(others) < len(items):
            self.own.clear()
            self.own.update(others)
        return len(others) < len(items)

    def _is_as_before(self) -> bool:
        if len(self.twin) != len(self._before):
            return False
        if isinstance(self.own, list):
            return all(one is other for one, other in zip(self.twin, self._before, strict=True))
        return all(key in self.twin and self.twin[key] is item for key, item in self._before.items())


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

    def give_back(self, twins: Twins) -> None:
        """Have the own one be what the program has set the twin's to."""
        with contextlib.suppress(ValueError):
            found = self._twin.cell_contents
            if found is self._given:
                return
            self._twin.cell_contents = self._given
            own = twins.own_of(found)
            if _has_tensor(own):
                raise RuntimeError(
                    "bridge.fuse: the program sets a variable around a function to a tensor, which a fused program "
                    "cannot keep: give it as a result"
                )
            self._own.cell_contents = own


class _Globals(dict[str, Any]):
    """The twins of a file's globals. What the program sets them to is in it until the call is over."""

    def __init__(self, twins: Twins, own: dict[str, Any]) -> None:
        super().__init__(__builtins__=own["__builtins__"], __name__=own.get("__name__"))
        self._twins, self._own = twins, own

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name) if name in self else self._twins.of(self._own[name])

    def give_back(self) -> None:
        """Have the globals be what the program has set them to."""
        for name in [*self][2:]:
            own = self._twins.own_of(self.pop(name))
            if _has_tensor(own):
                raise RuntimeError(
                    f"bridge.fuse: the program sets the global {name} to a tensor, which a fused program cannot keep: "
                    "give it as a result"
                )
            self._own[name] = own


def _empty_twin_of_function(twins: Twins, function: FunctionType) -> FunctionType:
    closure = tuple(CellType() for _ in function.__closure__ or ())
    twin = FunctionType(function.__code__, twins.twins_of_globals(function), function.__name__, None, closure)
    twin.__dict__ = function.__dict__
    return twin


class _CellTwin:
    """What stands for a Cell."""

    _bridge_twin: tuple[Twins, Any]


def _twin_of_cell(twins: Twins, cell: ms.nn.Cell) -> Any:
    kind = _twin_class(type(cell))  # type: ignore[arg-type]
    twin = kind.__new__(kind)
    object.__setattr__(twin, "_bridge_twin", (twins, cell))
    return twin


@functools.cache
def _twin_class(kind: Any) -> Any:
    """A Cell's class for its twin: what it has is the twin of what the Cell has now."""
    has_bprop = hasattr(kind, "bprop")

    class Twin(_CellTwin, kind):  # type: ignore[misc, valid-type]  # any Cell's
        def __getattribute__(self, name: str) -> Any:
            if name in ("_bridge_twin", "__class__"):
                return object.__getattribute__(self, name)
            twins, cell = object.__getattribute__(self, "_bridge_twin")
            of_class = getattr(kind, name, None)
            if isinstance(of_class, property) and isinstance(of_class.fget, FunctionType) and _is_own(of_class.fget):
                return twins.of(of_class.fget)(self)
            return twins.of(getattr(cell, name))

        def __setattr__(self, name: str, value: Any) -> None:
            twins, cell = self._bridge_twin
            buffer = vars(cell).get("_params", {}).get(name)
            if isinstance(value, torch.Tensor) and buffer is not None and not buffer.requires_grad:
                twins.of(buffer).copy_(value.detach())  # as the Cell's own assignment
                return
            setattr(cell, name, twins.kept(value, f"{type(cell).__name__}.{name} is assigned"))

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            if has_bprop:
                return call_with_bprop(self, args, kwargs)
            return self.construct(*args, **kwargs)

    return Twin
