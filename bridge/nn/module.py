"""A Cell with the methods of torch.nn.Module that ported code calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import mindspore as ms

from bridge.nn.state_dict import load_state_dict, state_dict

_Self = TypeVar("_Self", bound="Module")

_DEVICE = "mindspore.set_device chooses the device, and Parameters lie there: leave it out"
_DTYPE = "a Parameter keeps its dtype: pass dtype= to the layers, or let Cell.to_float choose that of the calls"
# Methods of torch.nn.Module that have no meaning here, and what to do instead.
_ELSEWHERE = {
    **dict.fromkeys(("cuda", "cpu", "to_empty", "share_memory"), _DEVICE),
    **dict.fromkeys(("half", "float", "double", "bfloat16"), _DTYPE),
    "zero_grad": "MindSpore's gradients are values, which no step adds to: leave it out",
}


class Module(ms.nn.Cell):
    """A Cell that begins in training mode and has PyTorch's `state_dict`, as a class of ported code derives from it.

    Its method is `construct`. It may have attributes that are layers of `bridge.nn` and Cells of MindSpore.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_train(True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls):
            raise TypeError(f"{cls.__name__}: MindSpore runs and compiles `construct`: name its `forward` so")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in _ELSEWHERE:
                raise
        raise AttributeError(f"{type(self).__name__} has no {name}: {_ELSEWHERE[name]}")

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        """A copy of the parameters and buffers as PyTorch's tensors, under the names that PyTorch gives them."""
        return state_dict(self)

    def load_state_dict(self, state_dict_: Mapping[str, Any], strict: bool = True) -> Any:  # type: ignore[override]
        """Load what `torch.load` gives, in place. See bridge.nn.load_state_dict."""
        return load_state_dict(self, state_dict_, strict)

    def train(self, mode: bool = True) -> Module:
        """Begin training, or evaluation, as `set_train` does."""
        return self.set_train(mode)

    def eval(self) -> Module:
        """End training: `set_train(False)`."""
        return self.set_train(False)

    def named_children(self) -> Iterator[tuple[str, ms.nn.Cell]]:
        """The layers and Cells that are attributes of this one, with their names."""
        yield from ((name, cell) for name, cell in self._cells.items() if cell is not None)

    def children(self) -> Iterator[ms.nn.Cell]:
        """The layers and Cells that are attributes of this one."""
        return (cell for _, cell in self.named_children())

    def named_modules(self, memo: Any = None, prefix: str = "") -> Iterator[tuple[str, ms.nn.Cell]]:
        """This Cell and all inside it, each once, with their paths."""
        yield from _named_modules(self, set() if memo is None else memo, prefix)

    def modules(self) -> Iterator[ms.nn.Cell]:
        """This Cell and all inside it, each once."""
        return (cell for _, cell in self.named_modules())

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, ms.Parameter]]:
        """The Parameters but buffers, each once, with their paths."""
        seen: set[int] = set()
        for path, cell in self.named_modules(prefix=prefix) if recurse else [(prefix, self)]:
            for name, parameter in _own_parameters(cell):
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield _joined(path, name), parameter

    def parameters(self, recurse: bool = True) -> Iterator[ms.Parameter]:
        """The Parameters but buffers, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def apply(self: _Self, fn: Callable[[ms.nn.Cell], Any]) -> _Self:  # type: ignore[override]
        """Call a function with each Cell inside this one, and with this one last."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Any:
        """As a Cell has it. Parameters that have one name get their paths for names: MindSpore's lists name what is
        appended to them without the list's own name."""
        found = [*super().parameters_and_names(name_prefix, expand)]
        if expand and len({parameter.name for _, parameter in found}) < len(found):
            for path, parameter in found:
                parameter.name = path
        return iter(found)

    def get_submodule(self, target: str) -> ms.nn.Cell:
        """The layer or Cell of a path, as "encoder.layers.0"."""
        return dict(self.named_modules())[target]

    def add_module(self, name: str, module: ms.nn.Cell | None) -> None:
        """Have a layer or Cell under a name."""
        setattr(self, name, module)

    register_module = add_module

    def register_parameter(self, name: str, param: ms.Parameter | None) -> None:
        """Have a Parameter under a name."""
        setattr(self, name, param)

    def requires_grad_(self: _Self, requires_grad: bool = True) -> _Self:
        """Say whether the Parameters are trained."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _named_modules(cell: ms.nn.Cell, seen: set[Any], path: str) -> Iterator[tuple[str, ms.nn.Cell]]:
    if cell in seen:
        return
    seen.add(cell)
    yield path, cell
    children = cell.named_children() if isinstance(cell, Module) else cell.name_cells().items()
    for name, child in children:
        yield from _named_modules(child, seen, _joined(path, name))


def _own_parameters(cell: ms.nn.Cell) -> Iterator[tuple[str, ms.Parameter]]:
    """The Parameters that are attributes of a Cell, or of a layer's module: the layer has those inside it, too."""
    names = getattr(cell, "own_parameters", cell._params)
    yield from ((name, cell._params[name]) for name in names if name in cell._params)
