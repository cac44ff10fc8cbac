"""A Cell with the methods of torch.nn.Module that ported code calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import mindspore as ms
import torch

from bridge.call import in_program
from bridge.nn.state_dict import load_state_dict, state_dict
from bridge.op import dtypes
from bridge.primitive.placement import check_device
from bridge.programs.cell import ModuleCell
from bridge.programs.program import Program

_Self = TypeVar("_Self", bound="Module")

_PLAIN = frozenset((type(None), bool, int, float, str, list))

_INSTEAD = {
    "forward": "call it, or its `construct`, which is MindSpore's name for a Cell's computation",
    "zero_grad": "MindSpore's gradients are values, which no step adds to: leave zero_grad out",
    "register_full_backward_hook": "MindSpore's name is register_backward_hook",
    "register_full_backward_pre_hook": "MindSpore's name is register_backward_pre_hook",
    "share_memory": "MindSpore's processes share no tensors",
}


class Module(ms.nn.Cell):
    """A Cell that begins in training mode and has PyTorch's `state_dict`, as a class of ported code derives from it.

    Its method is `construct`. It may have attributes that are layers of `bridge.nn` and Cells of MindSpore.
    """

    def __init__(self) -> None:
        if not isinstance(self, ModuleCell):  # a fused program may ask a layer for those inside it
            refuse_inside(self)
        super().__init__()
        self.set_train(True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls):
            raise TypeError(f"{cls.__name__}: MindSpore runs and compiles `construct`: name its `forward` so")

    def __setattr__(self, name: str, value: Any) -> None:
        if is_own(self, name, value):
            object.__setattr__(self, name, value)
            return
        refuse_torch_modules(self, [value])
        if "_cells" not in vars(self) and isinstance(value, (ms.nn.Cell, ms.Parameter)):
            raise AttributeError(
                f"{type(self).__name__}.{name} cannot be a {type(value).__name__} before super().__init__() is called"
            )
        if type(value) is ms.Tensor and vars(self).get("_buffers", {}).get(name) is not None:
            raise TypeError(
                f"{type(self).__name__}.{name} is a registered buffer, which MindSpore does not let change: write "
                f"self.{name} = nn.Buffer(x) in place of register_buffer, and an assignment changes it"
            )
        super().__setattr__(name, value)

    def state_dict(  # type: ignore[override]
        self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """A copy of the parameters and buffers as PyTorch's tensors. See bridge.nn.state_dict.

        A Cell of MindSpore's around this one, whose `state_dict` gives a destination, gets MindSpore's Parameters, as
        `keep_vars` says. A copy keeps nothing of them.
        """
        if destination is not None:
            return super().state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        return state_dict(self, prefix)

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

    def trainable_params(self, recurse: bool = True) -> list[ms.Parameter]:
        """As a Cell has it. Warns of lazy layers that have no Parameters yet: an optimizer would never train them."""
        lazy = [path or "it" for path, cell in self.named_modules() if getattr(cell, "is_uninitialised", False)]
        if lazy:
            warnings.warn(
                f"{type(self).__name__}: {', '.join(lazy)} has no Parameters before the first call, and an optimizer "
                "that is made now will not train them",
                stacklevel=2,
            )
        return super().trainable_params(recurse)

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, ms.Tensor]]:  # type: ignore[override]
        """What layers and `register_buffer` keep besides Parameters, each once, with their paths."""
        seen: set[int] = set()
        for path, cell in self.named_modules(prefix=prefix) if recurse else [(prefix, self)]:
            for name in [*getattr(cell, "own_buffers", ()), *cell._buffers]:
                buffer = getattr(cell, name)
                if buffer is not None and id(buffer) not in seen:
                    seen.add(id(buffer))
                    yield _joined(path, name), buffer

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

    def to(self: _Self, *args: Any, **kwargs: Any) -> _Self:
        """Cast the floating-point and complex Parameters, buffers too, in place.

        Args:
            args, kwargs: PyTorch's. A dtype is either framework's. A device is MindSpore's, which has all tensors.

        Raises:
            ValueError: the device is another one.
        """
        for key, value in [*(("", value) for value in args), *kwargs.items()]:
            if isinstance(value, (torch.dtype, ms.dtype.Type, ms.Tensor)):
                self._cast(value.dtype if isinstance(value, ms.Tensor) else value)
            elif value is not None and not isinstance(value, bool) and key != "memory_format":
                check_device(f"{type(self).__name__}.to", value)
        return self

    def _cast(self, dtype: Any) -> None:
        if not isinstance(dtype, torch.dtype):
            dtype = dtypes.to_torch(dtype)
        if not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"{type(self).__name__}.to takes a floating-point or complex dtype, not {dtype}")
        for parameter in self.get_parameters():
            found = dtypes.to_torch(parameter.dtype)
            if found.is_floating_point or found.is_complex:
                parameter.set_dtype(dtypes.to_mindspore(dtype))
        for _, cell in self.cells_and_names():
            if isinstance(cell, ModuleCell) and isinstance(cell.program, Program):
                cell.program.follow()
                _cast_unshared(cell.module, dtype)
            for buffer in cell._buffers.values():
                if buffer is not None and (buffer.is_floating_point() or buffer.is_complex()):
                    buffer.set_dtype(dtypes.to_mindspore(dtype))

    def cuda(self: _Self, device: Any = None) -> _Self:
        """Nothing if MindSpore's device is the GPU; else a ValueError."""
        return self.to("cuda" if device is None else device)

    def cpu(self: _Self) -> _Self:
        """Nothing if MindSpore's device is the CPU; else a ValueError."""
        return self.to("cpu")

    def half(self: _Self) -> _Self:
        """Cast to float16, as `to` does."""
        return self.to(torch.float16)

    def bfloat16(self: _Self) -> _Self:
        """Cast to bfloat16, as `to` does."""
        return self.to(torch.bfloat16)

    def float(self: _Self) -> _Self:
        """Cast to float32, as `to` does."""
        return self.to(torch.float32)

    def double(self: _Self) -> _Self:
        """Cast to float64, as `to` does."""
        return self.to(torch.float64)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in _INSTEAD:
                raise AttributeError(f"{type(self).__name__} has no {name}: {_INSTEAD[name]}") from None
            raise

    def requires_grad_(self: _Self, requires_grad: bool = True) -> _Self:
        """Say whether the Parameters are trained."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self


def is_own(cell: ms.nn.Cell, name: str, value: Any) -> bool:
    """Whether an attribute that a Cell has gets a value that is no part of the Cell. MindSpore sets ten such attributes
    in each call of a graph."""
    if name not in vars(cell) or type(value) not in _PLAIN:
        return False
    return type(value) is not list or not any(isinstance(item, ms.Parameter) for item in value)


def refuse_inside(cell: ms.nn.Cell) -> None:
    """Raise RuntimeError where a fused program makes a Cell: it would have other Parameters in each call."""
    if in_program.is_inside():
        raise RuntimeError(
            f"{type(cell).__name__} is made inside bridge.fuse or bridge.value_and_grad: make it before, and have it "
            "as a variable or an attribute"
        )


def refuse_torch_modules(owner: ms.nn.Cell, values: Iterable[Any]) -> None:
    """Raise TypeError if one of these, which become parts of a Cell, is PyTorch's: its parameters would be lost."""
    for value in values:
        if isinstance(value, torch.nn.Module):
            refuse_inside(owner)
            raise TypeError(
                f"{type(owner).__name__} takes layers and Cells, not PyTorch's module {type(value).__name__}: "
                "bridge.nn has PyTorch's layers, and bridge.cell makes a Cell of any module"
            )
        if isinstance(value, torch.nn.Parameter):
            raise TypeError(
                f"{type(owner).__name__} takes MindSpore's Parameters, not PyTorch's, which no optimizer would train: "
                "bridge.nn.Parameter makes one of MindSpore's tensors"
            )


def _cast_unshared(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Cast the buffers that no Parameter shares."""
    for part in module.modules():
        for name in part._non_persistent_buffers_set:
            buffer = part._buffers[name]
            if buffer is not None and (buffer.is_floating_point() or buffer.is_complex()):
                part._buffers[name] = buffer.to(dtype)


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
