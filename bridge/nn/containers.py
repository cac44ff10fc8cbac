"""PyTorch's containers, of layers and of MindSpore's Cells alike: MindSpore's containers with PyTorch's arguments."""

from __future__ import annotations

import collections
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.nn.layer import Layer
from bridge.nn.module import Module, refuse_torch_modules
from bridge.programs.program import Program
from bridge.programs.twin import HasTwin


class _Run(_mindspore.CompiledAsMethod, HasTwin):
    """The call of a Sequential. In PyNative mode layers that are all PyTorch's run as one module; in a graph each is
    called."""

    def __init__(self, cells: list[ms.nn.Cell]) -> None:
        self.cells = cells
        self._program: Program | None = None
        self._programs: list[Any] = []

    def __call__(self, value: Any) -> Any:
        if len(self.cells) > 1 and self._are_plain_layers():
            return self._fused()(value)
        for cell in self.cells:
            value = cell(value)
        return value

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_program": None, "_programs": []}

    def twin(self, of: Callable[[Any], Any]) -> Any:
        cells = of(list(self.cells))
        return lambda value: functools.reduce(lambda result, cell: cell(result), cells, value)

    def _are_plain_layers(self) -> bool:
        """Whether nothing stands between the layers but their modules."""
        precision = getattr(self.cells[0], "program", self).__dict__.get("precision")
        return all(
            isinstance(cell, Layer)
            and type(cell).construct is Layer.construct
            and isinstance(cell.program, Program)
            and cell.program.precision == precision
            and _mindspore.is_plain(cell)
            for cell in self.cells
        )

    def _fused(self) -> Program:
        programs: list[Any] = [cell.program for cell in self.cells]
        if self._program is None or any(a is not b for a, b in zip(programs, self._programs, strict=True)):
            for program in programs:
                program.follow()
            self._program = Program(torch.nn.Sequential(*(program.function for program in programs)))
            self._programs = programs
        self._program.precision = programs[0].precision
        return self._program

    def _call_in_graph(self, value):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        for cell in self.cells:
            value = cell(value)
        return value


class _List:
    """What both of PyTorch's lists of layers have, and MindSpore's do not."""

    def __getitem__(self: Any, index: Any) -> Any:
        if not isinstance(index, slice):
            return super().__getitem__(index)  # type: ignore[misc]  # of MindSpore's class
        names = [(parameter, parameter.name) for parameter in self.get_parameters()]
        found = type(self)(self._of_slice(index))
        for parameter, name in names:
            parameter.name = name  # which MindSpore gives anew to what a list is made of
        return found

    def _of_slice(self: Any, index: slice) -> Any:
        """What a list of some of them is made of."""
        return list(self._cells.values())[index]

    def pop(self: Any, key: int | slice) -> Any:
        """Take one out, or several."""
        found = self[key]
        del self[key]
        return found


class Sequential(_List, ms.nn.SequentialCell, Module):
    """PyTorch's Sequential of layers and Cells, or of an OrderedDict of them."""

    def __init__(self, *cells: Any) -> None:
        refuse_torch_modules(self, cells)
        super().__init__(*cells)  # type: ignore[call-arg]  # of MindSpore's class
        _mindspore.is_one_operator(Sequential)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "cell_list":  # which MindSpore sets at each change
            self.run = _Run(list(value))

    def add_flags(self, **flags: Any) -> None:
        """As a Cell has it. Its layers and Cells take a dtype of `to_float` for themselves."""
        super().add_flags(**flags)
        if type(self).construct is Sequential.construct:
            _mindspore.leave_inputs(self)

    def construct(self, input):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.run(input)

    def _of_slice(self: Any, index: slice) -> Any:
        return collections.OrderedDict(list(self._cells.items())[index])

    def append(self, module: ms.nn.Cell) -> Sequential:
        """Add one."""
        super().append(module)
        return self

    def extend(self, cells: Iterable[ms.nn.Cell]) -> Sequential:
        """Append several."""
        for cell in list(cells):
            self.append(cell)
        return self

    __iadd__ = extend

    def insert(self, index: int, module: ms.nn.Cell) -> Sequential:
        """Add one before another."""
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        index += len(self) if index < 0 else 0
        self.append(module)
        items: list[Any] = list(vars(self)["_cells"].items())
        for order in items, self._is_dynamic_name:
            order.insert(index, order.pop())
        self._cells = dict(items)
        del self[len(self) :]  # nothing; MindSpore gives all the names of their places
        return self

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *other)


_NOTHING = ms.nn.Cell()


class ModuleList(_List, ms.nn.CellList, Module):
    """PyTorch's ModuleList of layers and Cells. As there, one may be None."""

    def __init__(self, modules: Iterable[ms.nn.Cell | None] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def append(self, module: ms.nn.Cell | None) -> ModuleList:
        """Add one."""
        self._call(ms.nn.CellList.append, module)
        return self

    def extend(self, modules: Iterable[ms.nn.Cell | None]) -> ModuleList:
        """Add several."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: ms.nn.Cell | None) -> None:
        """Add one before another."""
        self._call(ms.nn.CellList.insert, index, module)

    def __add__(self, other: Iterable[ms.nn.Cell | None]) -> ModuleList:
        return ModuleList([*self, *other])

    def set_grad(self, requires_grad: bool = True) -> ModuleList:
        """As a Cell has it."""
        self._call(ms.nn.CellList.set_grad, requires_grad)
        return self

    def __setitem__(self, index: int, module: ms.nn.Cell | None) -> None:
        self._call(ms.nn.CellList.__setitem__, index, module)

    def __delitem__(self, index: int | slice) -> None:
        self._call(ms.nn.CellList.__delitem__, index)

    def _call(self, method: Callable[..., Any], *args: Any) -> None:
        """Call a method of MindSpore's, which takes Cells only: one that does nothing stands for None."""
        refuse_torch_modules(self, args)
        cells = self._cells
        cells.update((name, _NOTHING) for name, cell in cells.items() if cell is None)
        try:
            method(self, *(_NOTHING if value is None else value for value in args))
        finally:
            cells = self._cells  # which a method may have made anew
            cells.update((name, None) for name, cell in cells.items() if cell is _NOTHING)


class ModuleDict(_mindspore.CellsByName, Module):
    """PyTorch's ModuleDict of layers and Cells."""

    def __init__(self, modules: Mapping[str, ms.nn.Cell] | None = None) -> None:
        modules = {} if modules is None else dict(modules)
        refuse_torch_modules(self, modules.values())
        super().__init__(modules)  # type: ignore[call-arg]  # of MindSpore's class


class _Parameters(Module):
    """Parameters under names."""

    def _put(self, name: str, value: Any) -> None:
        parameter = value if isinstance(value, ms.Parameter) else ms.Parameter(value)
        prefix = self.param_prefix and f"{self.param_prefix}."
        parameter.name = f"{prefix}{name}"
        self._params[name] = parameter

    def __len__(self) -> int:
        return len(self._params)

    def __bool__(self) -> bool:
        return True

    def extend_repr(self) -> str:
        """What Python shows of it: the Parameters' shapes and dtypes."""
        return ", ".join(f"({name}): {tuple(p.shape)} {p.dtype}" for name, p in self._params.items())


class ParameterList(_Parameters):
    """PyTorch's ParameterList: a list of MindSpore's Parameters."""

    __parameter_tuple__ = True  # for MindSpore's compiler it is a tuple of Parameters

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    def append(self, value: Any) -> ParameterList:
        """Add a Parameter, or a tensor as one."""
        self._put(str(len(self)), value)
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add several."""
        for value in values:
            self.append(value)
        return self

    def __getitem__(self, index: Any) -> Any:
        return list(self._params.values())[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self._put(list(self._params)[index], value)

    def __iter__(self) -> Iterator[ms.Parameter]:
        return iter(list(self._params.values()))


class ParameterDict(_Parameters):
    """PyTorch's ParameterDict: MindSpore's Parameters by name."""

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.update(parameters or {})

    def update(self, parameters: Mapping[str, Any]) -> None:
        """Add several."""
        for name, value in parameters.items():
            self._put(name, value)

    def __getitem__(self, name: str) -> ms.Parameter:
        if _mindspore.is_compilers(sys._getframe(1)):
            raise TypeError(
                f"ParameterDict[{name!r}] is a constant for MindSpore's compiler, without a gradient: in a graph take "
                "the Parameters by values() or items(), or have them as attributes or in a ParameterList"
            )
        return self._params[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._put(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._params

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._params))

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._params.keys()

    def values(self) -> Iterable[ms.Parameter]:
        """The Parameters."""
        return self._params.values()

    def items(self) -> Iterable[tuple[str, ms.Parameter]]:
        """Names and Parameters."""
        return self._params.items()
